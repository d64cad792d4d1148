#include "frontend/cmd.h"
int cmd_import(struct session *s)
{
	(void)s;
	return WRONG;
}
