/* edgeinfer/csrc/cpu.h: what this CPU and operating system can run. A level of another CPU family has no definition. */
#ifndef EI_CPU_H
#define EI_CPU_H

#include <stdbool.h>

bool ei_cpu_has_avx2(void);
bool ei_cpu_has_avxvnni(void);
bool ei_cpu_has_avx512(void);
bool ei_cpu_has_neon(void);
bool ei_cpu_has_i8mm(void);

#endif
