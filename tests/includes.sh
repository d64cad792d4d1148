#!/bin/sh
# Holds the direction of the folders: frontend -> ir <- passes, codegen -> ir,
# runtime -> ir and codegen; only the driver (frontend/ptc.c, frontend/cmd_*.c) sees all.
cd "$(dirname "$0")/.." || exit 1
. tests/lib.sh

allowed() {
	case $1 in
	frontend/ptc.c | frontend/cmd.h | frontend/cmd_*) echo 'frontend ir passes codegen runtime' ;;
	frontend/*) echo 'frontend ir' ;;
	ir/*) echo 'ir' ;;
	passes/*) echo 'passes ir' ;;
	codegen/*) echo 'codegen ir' ;;
	runtime/*) echo 'runtime codegen ir' ;;
	esac
}

for f in frontend/*.[chly] ir/*.[ch] passes/*.[ch] codegen/*.[ch] runtime/*.[ch]; do
	[ -f "$f" ] || continue
	may=" $(allowed "$f") "
	good=1
	for d in $(sed -n 's,^[[:space:]]*#[[:space:]]*include "\(frontend\|ir\|passes\|codegen\|runtime\)/.*,\1,p' "$f" | sort -u); do
		case $may in
		*" $d "*) ;;
		*)
			good=0
			bad "$f includes a header of $d/"
			;;
		esac
	done
	[ $good = 1 ] && ok "$f"
done
finish
