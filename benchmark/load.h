/* What the load (load.c), the echo server (echo.c) and the signature (sign.c) share. */
#ifndef RMQ_LOAD_H
#define RMQ_LOAD_H

#include <stddef.h>
#include <stdint.h>

#define EVENTS 256 /* taken from epoll at a time */

/* One line on standard error, and exit code 1. */
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Serves until it is killed. */
void serve_echo(int port) __attribute__((noreturn));

/* Has every later request signed by an account, "KEY:SECRET". */
void sign_as(const char *account);
int signs(void);

/* Adds the account and its signature to ext fields, whose names ascend in small letters; `at` is where they end.
   Returns where they end then; they need 200 bytes more. */
char *put_signature(char *at, const char *ext, const void *body, size_t body_size);

static inline uint32_t get_int(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

#endif
