/*
 * Load for a RocketMQ broker, and the echo server it is measured against. Linux, epoll, one thread.
 *
 *   load send HOST PORT [options]   SEND_MESSAGE_V2 with JSON headers, as a Java 4.9.8 producer writes them
 *   load pull HOST PORT [options]   PULL_MESSAGE of 32, as a Java 4.9.8 push consumer writes them
 *   load echo PORT [--cpu N]        gives every whole frame back unchanged; prints "port N" (PORT 0: any free one)
 *
 * `send` and `pull` keep --in-flight requests open on each of --connections connections: --warm seconds that are not
 * counted, then --seconds that are; they stop asking, wait for what is open, and print one line of JSON. Only answers
 * with code 0 count. With --server-pid the CPU time of that process is read at both ends of the counted window.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "load.h"

#define MAX_CONNECTIONS 4096
#define MAX_IN_FLIGHT 4096 /* slot numbers take 12 bits of the opaque */
#define SLOT_BITS 12
#define MAX_FRAME (16u << 20)
#define QUEUES 16

static const char *DIGITS = "0123456789ABCDEF";

/* ---------------------------------------------------------------- options */

enum work { SEND, PULL };

static struct {
    enum work work;
    int connections, in_flight, body, queues, echo, cpu, pull_size;
    double warm, seconds;
    long messages; /* send: stop after so many acknowledged, 0 = by time */
    long server_pid;
    const char *topic, *broker, *group;
} opt = {
    .connections = 1, .in_flight = 1, .body = 128, .queues = 4, .cpu = -1, .pull_size = 32, .warm = 1, .seconds = 3,
    .topic = "BenchTopic", .broker = "broker-a", .group = "bench_group",
};

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

/* ------------------------------------------------------------------ clocks */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* CPU time of all threads of a process, ns. Threads that ended in between are lost: neither broker ends any at work. */
static uint64_t cpu_of(long pid)
{
    char path[320];
    snprintf(path, sizeof path, "/proc/%ld/task", pid);
    DIR *dir = opendir(path);
    uint64_t sum = 0;
    if (!dir)
        return 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%ld/task/%s/schedstat", pid, entry->d_name);
        FILE *file = fopen(path, "r");
        uint64_t ran;
        if (!file)
            continue;
        if (fscanf(file, "%" SCNu64, &ran) == 1)
            sum += ran;
        fclose(file);
    }
    closedir(dir);
    return sum;
}

static double own_cpu(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec)
        + (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static void pin(int cpu)
{
    cpu_set_t set;
    if (cpu < 0)
        return;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("cannot run on CPU %d: %s", cpu, strerror(errno));
}

/* --------------------------------------------------------------- histogram */

/* Log-linear: 128 steps to each power of two, so a figure is right to 0.8 %. */
#define STEP_BITS 7
#define BUCKETS ((64 - STEP_BITS) << STEP_BITS)
static uint64_t histogram[BUCKETS];
static uint64_t slowest;

static void note_latency(uint64_t ns)
{
    unsigned index;
    if (ns < (1u << STEP_BITS))
        index = (unsigned)ns;
    else {
        unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - STEP_BITS;
        index = ((shift + 1) << STEP_BITS) + (unsigned)((ns >> shift) - (1u << STEP_BITS));
    }
    histogram[index]++;
    if (ns > slowest)
        slowest = ns;
}

static double percentile_us(double share, uint64_t total)
{
    uint64_t want = (uint64_t)(share * (double)total), seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > want) {
            if (i < (1u << STEP_BITS))
                return i / 1e3;
            unsigned shift = (i >> STEP_BITS) - 1;
            uint64_t low = ((uint64_t)((i & ((1u << STEP_BITS) - 1)) + (1u << STEP_BITS))) << shift;
            return ((double)low + (double)(1ull << shift) / 2) / 1e3;
        }
    }
    return 0;
}

/* ------------------------------------------------------------- connections */

struct slot {
    uint64_t sent_at;
    uint32_t opaque;
};

struct connection {
    int fd, index;
    struct slot *slots;
    uint32_t *free_slots;
    int free_count;
    uint32_t sequence;
    uint8_t *in;
    size_t in_size, in_used;
    uint8_t *out;
    size_t out_size, out_used, out_sent;
    int waits_to_write;
    char key_prefix[21]; /* of UNIQ_KEY: address, process, loader; the same for all messages of a connection */
    uint32_t counter;
    int queue;
    int64_t next[QUEUES]; /* pull: next offset to ask */
};

static struct connection *connections;
static int poll_fd;
static uint64_t sent, acknowledged, errors, strays, window_count, window_bytes;
static int window_open, stopping;
static long codes[512], other_codes;
static char first_remark[512];
static int64_t min_offset[QUEUES], max_offset[QUEUES];
static uint64_t month_start_ms;
static uint8_t *body;

static void reserve_out(struct connection *c, size_t more)
{
    if (c->out_used + more <= c->out_size)
        return;
    while (c->out_used + more > c->out_size)
        c->out_size *= 2;
    if (!(c->out = realloc(c->out, c->out_size)))
        fail("out of memory");
}

static void put_int(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 24);
    at[1] = (uint8_t)(value >> 16);
    at[2] = (uint8_t)(value >> 8);
    at[3] = (uint8_t)value;
}

static char *put_text(char *at, const char *text)
{
    size_t n = strlen(text);
    memcpy(at, text, n);
    return at + n;
}

static char *put_number(char *at, uint64_t value)
{
    char digits[20];
    int n = 0;
    do
        digits[n++] = (char)('0' + value % 10);
    while (value /= 10);
    while (n)
        *at++ = digits[--n];
    return at;
}

static char *put_padded(char *at, uint64_t value, int width)
{
    for (int i = width - 1; i >= 0; i--, value /= 10)
        at[i] = (char)('0' + value % 10);
    return at + width;
}

static char *put_hex(char *at, uint32_t value, int width)
{
    for (int i = width - 1; i >= 0; i--, value >>= 4)
        at[i] = DIGITS[value & 15];
    return at + width;
}

static uint32_t take_slot(struct connection *c, uint64_t now)
{
    uint32_t slot = c->free_slots[--c->free_count];
    uint32_t opaque = (c->sequence++ << SLOT_BITS | slot) & 0x7FFFFFFF;
    c->slots[slot].opaque = opaque;
    c->slots[slot].sent_at = now;
    return opaque;
}

static char *end_header(char *at, uint32_t opaque)
{
    at = put_text(at, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":");
    at = put_number(at, opaque);
    return put_text(at, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}");
}

static void close_frame(struct connection *c, char *end, size_t body_size)
{
    uint8_t *frame = c->out + c->out_used;
    size_t header = (size_t)((uint8_t *)end - frame) - 8;
    put_int(frame, (uint32_t)(4 + header + body_size));
    put_int(frame + 4, (uint32_t)header);
    c->out_used += 8 + header + body_size;
}

static void add_send(struct connection *c, uint64_t now, uint64_t ms)
{
    reserve_out(c, 2048 + (size_t)opt.body);
    char *at = (char *)c->out + c->out_used + 8;
    at = put_text(at, "{\"code\":310,\"extFields\":{");
    const char *ext = at;
    at = put_text(at, "\"a\":\"");
    at = put_text(at, opt.group);
    at = put_text(at, "\",\"b\":\"");
    at = put_text(at, opt.topic);
    at = put_text(at, "\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"");
    at = put_number(at, (uint64_t)c->queue);
    c->queue = (c->queue + 1) % opt.queues;
    at = put_text(at, "\",\"f\":\"0\",\"g\":\"");
    at = put_padded(at, ms, 13);
    at = put_text(at, "\",\"h\":\"0\",\"i\":\"KEYS\\u0001order-");
    at = put_padded(at, sent, 10);
    at = put_text(at, "\\u0002UNIQ_KEY\\u0001");
    memcpy(at, c->key_prefix, 20);
    at = put_hex(at + 20, (uint32_t)(ms - month_start_ms), 8);
    at = put_hex(at, c->counter++, 4);
    at = put_text(at, "\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\",\"n\":\"");
    at = put_text(at, opt.broker);
    at = put_text(at, "\"");
    if (signs())
        at = put_signature(at, ext, body, (size_t)opt.body);
    at = end_header(at, take_slot(c, now));
    memcpy(at, body, (size_t)opt.body);
    close_frame(c, at, (size_t)opt.body);
    sent++;
}

static void add_pull(struct connection *c, uint64_t now)
{
    int queue = c->queue;
    c->queue = (queue + 1) % opt.queues;
    int64_t offset = c->next[queue];
    if (offset + opt.pull_size > max_offset[queue])
        offset = min_offset[queue];
    c->next[queue] = offset + opt.pull_size;
    reserve_out(c, 2048);
    char *at = (char *)c->out + c->out_used + 8;
    at = put_text(at, "{\"code\":11,\"extFields\":{\"bname\":\"");
    at = put_text(at, opt.broker);
    at = put_text(at, "\",\"queueId\":\"");
    at = put_number(at, (uint64_t)queue);
    at = put_text(at, "\",\"maxMsgNums\":\"");
    at = put_number(at, (uint64_t)opt.pull_size);
    at = put_text(at, "\",\"sysFlag\":\"3\",\"suspendTimeoutMillis\":\"15000\",\"commitOffset\":\"");
    at = put_number(at, (uint64_t)max_offset[queue]); /* never back: brokers warn of that, line by line */
    at = put_text(at, "\",\"topic\":\"");
    at = put_text(at, opt.topic);
    at = put_text(at, "\",\"queueOffset\":\"");
    at = put_number(at, (uint64_t)offset);
    at = put_text(at, "\",\"expressionType\":\"TAG\",\"subVersion\":\"1700000000000\",\"consumerGroup\":\"");
    at = put_text(at, opt.group);
    at = put_text(at, "\"");
    at = end_header(at, take_slot(c, now));
    close_frame(c, at, 0);
    sent++;
}

static void flush(struct connection *c)
{
    while (c->out_sent < c->out_used) {
        ssize_t n = send(c->fd, c->out + c->out_sent, c->out_used - c->out_sent, MSG_NOSIGNAL);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            if (errno != EAGAIN)
                fail("connection %d: %s", c->index, strerror(errno));
            if (!c->waits_to_write) {
                struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = c};
                epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
                c->waits_to_write = 1;
            }
            return;
        }
        c->out_sent += (size_t)n;
    }
    c->out_used = c->out_sent = 0;
    if (c->waits_to_write) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
        c->waits_to_write = 0;
    }
}

static void fill(struct connection *c, uint64_t now)
{
    if (stopping || !c->free_count)
        return;
    uint64_t ms = wall_ms();
    while (c->free_count) {
        if (opt.messages && opt.work == SEND && sent >= (uint64_t)opt.messages)
            break;
        if (opt.work == SEND)
            add_send(c, now, ms);
        else
            add_pull(c, now);
    }
    flush(c);
}

/* ----------------------------------------------------------------- answers */

static long number_after(const char *header, size_t size, const char *name, long absent)
{
    const char *at = memmem(header, size, name, strlen(name));
    if (!at)
        return absent;
    return strtol(at + strlen(name), NULL, 10); /* a header ends with '}', so strtol stops inside it */
}

static void keep_remark(const char *header, size_t size, const char *why)
{
    if (first_remark[0])
        return;
    size_t n = size < 400 ? size : 400;
    int used = snprintf(first_remark, sizeof first_remark, "%s: ", why);
    for (size_t i = 0; i < n && used < (int)sizeof first_remark - 2; i++) {
        char ch = header[i];
        first_remark[used++] = (ch == '"' || ch == '\\') ? '\'' : (ch < ' ' || ch > '~') ? '.' : ch;
    }
    first_remark[used] = 0;
}

/* What a pull must bring: exactly the records asked for, sizes adding up to the body. */
static int whole_records(const uint8_t *at, size_t size)
{
    int count = 0;
    while (size >= 91) {
        uint32_t total = get_int(at);
        if (total < 91 || total > size || get_int(at + 4) != 0xDAA320A7u)
            return 0;
        at += total;
        size -= total;
        count++;
    }
    return size == 0 && count == opt.pull_size;
}

static void answer(struct connection *c, const uint8_t *frame, size_t size, uint64_t now)
{
    size_t header_size = get_int(frame) & 0xFFFFFF;
    const char *header = (const char *)frame + 4;
    if (frame[0] != 0 || header_size + 4 > size)
        fail("connection %d: a frame with serialize type %d, header %zu of %zu bytes", c->index, frame[0], header_size,
             size);
    if (!opt.echo && !(number_after(header, header_size, "\"flag\":", 0) & 1))
        return; /* the broker asks something (consumer ids changed): nothing to do with us */
    uint32_t opaque = (uint32_t)number_after(header, header_size, "\"opaque\":", -1);
    uint32_t number = opaque & ((1u << SLOT_BITS) - 1);
    if (number >= (uint32_t)opt.in_flight || c->slots[number].opaque != opaque || !c->slots[number].sent_at) {
        strays++;
        keep_remark(header, header_size, "an answer nobody waits for");
        return;
    }
    struct slot *slot = &c->slots[number];
    uint64_t took = now - slot->sent_at;
    slot->sent_at = 0;
    c->free_slots[c->free_count++] = number;
    long code = number_after(header, header_size, "\"code\":", -1);
    if (opt.echo)
        code = 0;
    if (code >= 0 && code < (long)(sizeof codes / sizeof *codes))
        codes[code]++;
    else
        other_codes++;
    int good = code == 0;
    if (good && opt.work == PULL && !opt.echo && !whole_records(frame + 4 + header_size, size - 4 - header_size)) {
        good = 0;
        keep_remark(header, header_size, "not the records asked for");
    }
    if (!good) {
        errors++;
        keep_remark(header, header_size, "an answer with an error");
        return;
    }
    acknowledged++;
    if (window_open) {
        window_count++;
        window_bytes += size + 4;
        note_latency(took);
    }
}

static void readable(struct connection *c)
{
    ssize_t n = recv(c->fd, c->in + c->in_used, c->in_size - c->in_used, 0);
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return;
        fail("connection %d: %s", c->index, strerror(errno));
    }
    if (n == 0)
        fail("connection %d was closed by the broker after %" PRIu64 " answers", c->index, acknowledged);
    uint64_t now = now_ns();
    c->in_used += (size_t)n;
    size_t at = 0;
    while (c->in_used - at >= 4) {
        size_t size = get_int(c->in + at);
        if (size < 4 || size > MAX_FRAME)
            fail("connection %d: a frame of %zu bytes", c->index, size);
        if (c->in_used - at < 4 + size) {
            if (4 + size > c->in_size - at && 4 + size > c->in_size) {
                c->in_size = 4 + size;
                if (!(c->in = realloc(c->in, c->in_size)))
                    fail("out of memory");
            }
            break;
        }
        answer(c, c->in + at + 4, size, now);
        at += 4 + size;
    }
    if (at) {
        memmove(c->in, c->in + at, c->in_used - at);
        c->in_used -= at;
    }
    fill(c, now);
}

/* ------------------------------------------------------------------- set-up */

static int dial(const char *host, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        fail("%s is not an IPv4 address", host);
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("cannot connect to %s:%d: %s", host, port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void read_whole(int fd, uint8_t *to, size_t size)
{
    while (size) {
        ssize_t n = recv(fd, to, size, 0);
        if (n <= 0 && errno == EINTR)
            continue;
        if (n <= 0)
            fail("the broker closed the connection while it was set up");
        to += n;
        size -= (size_t)n;
    }
}

/* One call and its answer's header, before the load begins. */
static const char *call(int fd, int code, const char *ext, const char *text)
{
    static char frame[8192], header[65536], with_account[1024];
    if (signs()) {
        char *end = put_text(with_account, ext);
        *put_signature(end, with_account, text, strlen(text)) = 0;
        ext = with_account;
    }
    int n = snprintf(frame + 8, sizeof frame - 8,
                     "{\"code\":%d,%s%s%s\"flag\":0,\"language\":\"JAVA\",\"opaque\":1,"
                     "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":409}%s",
                     code, ext[0] ? "\"extFields\":{" : "", ext, ext[0] ? "}," : "", text);
    put_int((uint8_t *)frame, (uint32_t)(4 + n));
    put_int((uint8_t *)frame + 4, (uint32_t)(n - (int)strlen(text)));
    if (send(fd, frame, (size_t)n + 8, MSG_NOSIGNAL) != n + 8)
        fail("the broker closed the connection while it was set up");
    for (;;) {
        uint8_t length[8];
        read_whole(fd, length, 8);
        size_t size = get_int(length) - 4, header_size = get_int(length + 4) & 0xFFFFFF;
        if (size >= sizeof header || header_size > size)
            fail("code %d: an answer of %zu bytes", code, size);
        read_whole(fd, (uint8_t *)header, size);
        header[size] = 0;
        if (!(number_after(header, header_size, "\"flag\":", 0) & 1))
            continue;
        if (number_after(header, header_size, "\"code\":", -1) != 0)
            fail("code %d was answered with %.300s", code, header);
        return header;
    }
}

static int64_t offset_of(int fd, int code, int queue)
{
    char ext[512];
    snprintf(ext, sizeof ext, "\"queueId\":\"%d\",\"topic\":\"%s\"", queue, opt.topic);
    const char *header = call(fd, code, ext, ""), *at = strstr(header, "\"offset\":\"");
    if (!at)
        fail("code %d: no offset in %.300s", code, header);
    return strtoll(at + 10, NULL, 10);
}

static void heartbeat(int fd, int index)
{
    char text[2048];
    if (opt.work == SEND)
        snprintf(text, sizeof text,
                 "{\"clientID\":\"127.0.0.1@load-%d-%d\",\"consumerDataSet\":[],"
                 "\"producerDataSet\":[{\"groupName\":\"%s\"}]}",
                 getpid(), index, opt.group);
    else
        snprintf(text, sizeof text,
                 "{\"clientID\":\"127.0.0.1@load-%d-%d\",\"consumerDataSet\":[{\"consumeFromWhere\":"
                 "\"CONSUME_FROM_LAST_OFFSET\",\"consumeType\":\"CONSUME_PASSIVELY\",\"groupName\":\"%s\","
                 "\"messageModel\":\"CLUSTERING\",\"subscriptionDataSet\":[{\"classFilterMode\":false,\"codeSet\":[],"
                 "\"expressionType\":\"TAG\",\"subString\":\"*\",\"subVersion\":1700000000000,\"tagsSet\":[],"
                 "\"topic\":\"%s\"}],\"unitMode\":false}],\"producerDataSet\":[]}",
                 getpid(), index, opt.group, opt.topic);
    call(fd, 34, "", text);
}

static void open_connection(struct connection *c, int index, const char *host, int port)
{
    c->index = index;
    c->fd = dial(host, port);
    c->in_size = opt.work == PULL ? 4u << 20 : 256u << 10;
    c->out_size = 64u << 10;
    c->in = malloc(c->in_size);
    c->out = malloc(c->out_size);
    c->slots = calloc((size_t)opt.in_flight, sizeof *c->slots);
    c->free_slots = calloc((size_t)opt.in_flight, sizeof *c->free_slots);
    if (!c->in || !c->out || !c->slots || !c->free_slots)
        fail("out of memory");
    for (int i = 0; i < opt.in_flight; i++)
        c->free_slots[c->free_count++] = (uint32_t)i;
    c->sequence = 1;
    c->queue = index % opt.queues;
    char *at = put_text(c->key_prefix, "7F000001");
    at = put_hex(at, (uint32_t)(getpid() + index), 4);
    put_hex(at, 0x18B4AAC2u, 8);
    if (!opt.echo)
        heartbeat(c->fd, index);
    if (opt.work == PULL && !opt.echo) {
        for (int q = 0; q < opt.queues; q++) {
            if (index == 0) {
                min_offset[q] = offset_of(c->fd, 31, q);
                max_offset[q] = offset_of(c->fd, 30, q);
                if (max_offset[q] - min_offset[q] < opt.pull_size)
                    fail("queue %d of %s holds %" PRId64 " messages: send some first", q, opt.topic,
                         max_offset[q] - min_offset[q]);
            }
            int64_t places = (max_offset[q] - min_offset[q]) / opt.pull_size;
            c->next[q] = min_offset[q] + opt.pull_size * (places * index / opt.connections);
        }
    }
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event))
        fail("epoll: %s", strerror(errno));
}

/* Runs until `until` (monotonic ns), or until nothing is open any more when stopping. */
static void run(uint64_t until)
{
    struct epoll_event events[EVENTS];
    for (;;) {
        uint64_t now = now_ns();
        if (now >= until)
            return;
        if (stopping && acknowledged + errors == sent)
            return;
        if (opt.messages && acknowledged + errors >= (uint64_t)opt.messages)
            return;
        int n = epoll_wait(poll_fd, events, EVENTS, (int)((until - now) / 1000000u) + 1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT)
                flush(c);
            if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP))
                readable(c);
        }
    }
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

static void set_month_start(void)
{
    time_t now = time(NULL);
    struct tm month;
    localtime_r(&now, &month);
    month.tm_mday = 1;
    month.tm_hour = month.tm_min = month.tm_sec = 0;
    month.tm_isdst = -1;
    month_start_ms = (uint64_t)mktime(&month) * 1000u;
}

static void load(const char *host, int port)
{
    set_month_start();
    body = malloc((size_t)opt.body + 1);
    connections = calloc((size_t)opt.connections, sizeof *connections);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (!body || !connections || poll_fd < 0)
        fail("out of memory");
    for (int i = 0; i < opt.body; i++) /* half compressible text, as bodies are */
        body[i] = (uint8_t)("{\"order\":12345,\"sku\":\"A-77\",\"qty\":3}"[i % 36]);
    for (int i = 0; i < opt.connections; i++)
        open_connection(&connections[i], i, host, port);
    uint64_t begin = now_ns();
    if (opt.messages) {
        window_open = 1;
        opt.warm = 0;
    }
    for (int i = 0; i < opt.connections; i++)
        fill(&connections[i], now_ns());
    if (opt.warm > 0)
        run(begin + ns_of(opt.warm));
    uint64_t server_from = opt.server_pid ? cpu_of(opt.server_pid) : 0;
    double own_from = own_cpu();
    uint64_t from = now_ns();
    window_open = 1;
    run(from + ns_of(opt.seconds));
    window_open = 0;
    uint64_t to = now_ns();
    uint64_t server_to = opt.server_pid ? cpu_of(opt.server_pid) : 0;
    double own_to = own_cpu();
    stopping = 1;
    run(now_ns() + ns_of(10));
    uint64_t unanswered = sent - acknowledged - errors;
    double took = (double)(to - from) / 1e9;
    printf("{\"work\":\"%s\",\"connections\":%d,\"in_flight\":%d,\"body\":%d,\"seconds\":%.6f,\"count\":%" PRIu64
           ",\"rate\":%.1f,\"p50_us\":%.2f,\"p99_us\":%.2f,\"max_us\":%.2f,\"bytes\":%" PRIu64
           ",\"server_cpu_ns\":%" PRIu64 ",\"load_cpu_share\":%.3f,\"sent\":%" PRIu64 ",\"acknowledged\":%" PRIu64
           ",\"errors\":%" PRIu64 ",\"strays\":%" PRIu64 ",\"unanswered\":%" PRIu64 ",\"codes\":{",
           opt.work == SEND ? "send" : "pull", opt.connections, opt.in_flight, opt.body, took, window_count,
           (double)window_count / took, percentile_us(0.50, window_count), percentile_us(0.99, window_count),
           (double)slowest / 1e3, window_bytes, server_to - server_from, (own_to - own_from) / took, sent,
           acknowledged, errors, strays, unanswered);
    const char *comma = "";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i]) {
            printf("%s\"%zu\":%ld", comma, i, codes[i]);
            comma = ",";
        }
    if (other_codes)
        printf("%s\"other\":%ld", comma, other_codes);
    printf("},\"first_error\":\"%s\"}\n", first_remark);
}

/* --------------------------------------------------------------------- main */

static long whole_number(const char *name, const char *text, long low, long high)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*end || value < low || value > high)
        fail("%s %s: a number from %ld to %ld is wanted", name, text, low, high);
    return value;
}

int main(int count, char **words)
{
    signal(SIGPIPE, SIG_IGN);
    int at = 2, port = 0, serve = 0;
    const char *host = "";
    if (count >= 3 && !strcmp(words[1], "echo")) {
        serve = 1;
        port = (int)whole_number("PORT", words[at++], 0, 65535);
    } else if (count >= 4 && (!strcmp(words[1], "send") || !strcmp(words[1], "pull"))) {
        opt.work = words[1][0] == 's' ? SEND : PULL;
        host = words[at++];
        port = (int)whole_number("PORT", words[at++], 1, 65535);
    } else
        fail("usage: load send|pull HOST PORT [--connections C] [--in-flight W] [--body N] [--warm S] [--seconds S] "
             "[--messages N] [--queues Q] [--topic T] [--group G] [--broker B] [--server-pid P] [--cpu N] [--echo] "
             "[--account KEY:SECRET], "
             "or load echo PORT [--cpu N]");
    for (; at < count; at++) {
        const char *name = words[at];
        if (!strcmp(name, "--echo")) {
            opt.echo = 1;
            continue;
        }
        if (at + 1 == count)
            fail("%s wants a value", name);
        const char *value = words[++at];
        if (!strcmp(name, "--connections"))
            opt.connections = (int)whole_number(name, value, 1, MAX_CONNECTIONS);
        else if (!strcmp(name, "--in-flight"))
            opt.in_flight = (int)whole_number(name, value, 1, MAX_IN_FLIGHT);
        else if (!strcmp(name, "--body"))
            opt.body = (int)whole_number(name, value, 1, 4 << 20);
        else if (!strcmp(name, "--queues"))
            opt.queues = (int)whole_number(name, value, 1, QUEUES);
        else if (!strcmp(name, "--messages"))
            opt.messages = whole_number(name, value, 1, 1000000000);
        else if (!strcmp(name, "--server-pid"))
            opt.server_pid = whole_number(name, value, 1, 1 << 30);
        else if (!strcmp(name, "--cpu"))
            opt.cpu = (int)whole_number(name, value, 0, CPU_SETSIZE - 1);
        else if (!strcmp(name, "--warm"))
            opt.warm = strtod(value, NULL);
        else if (!strcmp(name, "--seconds"))
            opt.seconds = strtod(value, NULL);
        else if (!strcmp(name, "--topic") && strlen(value) < 128)
            opt.topic = value;
        else if (!strcmp(name, "--group") && strlen(value) < 256)
            opt.group = value;
        else if (!strcmp(name, "--broker") && strlen(value) < 256)
            opt.broker = value;
        else if (!strcmp(name, "--account") && opt.work == SEND)
            sign_as(value);
        else
            fail("unknown option %s %s", name, value);
    }
    pin(opt.cpu);
    if (serve)
        serve_echo(port);
    else
        load(host, port);
    return 0;
}
