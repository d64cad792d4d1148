/* frontend/version.h - the version of ptc: the only place that has it. */
#ifndef PTC_VERSION_H
#define PTC_VERSION_H
#define PTC_VERSION "0.9"
#endif
