/* What the load (load.c) and the echo server (echo.c) share. */
#ifndef RMQ_LOAD_H
#define RMQ_LOAD_H

#include <stdint.h>

#define EVENTS 256 /* taken from epoll at a time */

/* One line on standard error, and exit code 1. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Serves until it is killed. */
void serve_echo(int port) __attribute__((noreturn));

static inline uint32_t get_int(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

#endif
