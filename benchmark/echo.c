/* The echo server: splits frames, as any broker must, and gives each back. What the machine can do at all. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "load.h"

struct echo {
    int fd;
    uint8_t *data;
    size_t size, used, whole, sent; /* [0, whole) are whole frames, of which [0, sent) went back */
};

static int echo_ready(int epoll, struct echo *e)
{
    for (;;) {
        if (e->sent == e->whole) {
            memmove(e->data, e->data + e->whole, e->used - e->whole);
            e->used -= e->whole;
            e->whole = e->sent = 0;
            if (e->used == e->size && !(e->data = realloc(e->data, e->size *= 2)))
                fail("out of memory");
            ssize_t n = recv(e->fd, e->data + e->used, e->size - e->used, 0);
            if (n < 0 && errno == EAGAIN)
                break;
            if (n <= 0)
                return 0;
            e->used += (size_t)n;
            while (e->used - e->whole >= 4 && e->used - e->whole >= 4 + (size_t)get_int(e->data + e->whole))
                e->whole += 4 + (size_t)get_int(e->data + e->whole);
        }
        if (e->sent < e->whole) {
            ssize_t n = send(e->fd, e->data + e->sent, e->whole - e->sent, MSG_NOSIGNAL);
            if (n < 0 && errno == EAGAIN) {
                struct epoll_event event = {.events = EPOLLOUT, .data.ptr = e};
                epoll_ctl(epoll, EPOLL_CTL_MOD, e->fd, &event);
                return 1;
            }
            if (n < 0)
                return 0;
            e->sent += (size_t)n;
            if (e->sent < e->whole)
                continue;
        }
        break; /* one read an event: every connection has its turn */
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = e};
    epoll_ctl(epoll, EPOLL_CTL_MOD, e->fd, &event);
    return 1;
}

void serve_echo(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024))
        fail("cannot listen on port %d: %s", port, strerror(errno));
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            struct echo *e = events[i].data.ptr;
            if (e) {
                if (!echo_ready(epoll, e)) {
                    close(e->fd);
                    free(e->data);
                    free(e);
                }
                continue;
            }
            int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd < 0)
                continue;
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            if (!(e = calloc(1, sizeof *e)) || !(e->data = malloc(e->size = 256u << 10)))
                fail("out of memory");
            e->fd = fd;
            event.events = EPOLLIN;
            event.data.ptr = e;
            epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        }
    }
}
