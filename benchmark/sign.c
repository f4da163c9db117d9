/* The signature of 4.x access control (rmq/protocol/signature.py): HMAC-SHA1 over values and body, in Base64. */
#include <stdio.h>
#include <string.h>

#include "load.h"

#define BLOCK 64
#define DIGEST 20

struct sha1 {
    uint32_t h[5];
    uint64_t size;
    uint8_t block[BLOCK];
};

static const char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static char access_key[64];
static struct sha1 inner, outer; /* with the secret in them */

static uint32_t turned(uint32_t value, int bits)
{
    return value << bits | value >> (32 - bits);
}

static void take_block(struct sha1 *s, const uint8_t *at)
{
    uint32_t w[80], a = s->h[0], b = s->h[1], c = s->h[2], d = s->h[3], e = s->h[4];
    for (int i = 0; i < 16; i++)
        w[i] = get_int(at + 4 * i);
    for (int i = 16; i < 80; i++)
        w[i] = turned(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5A827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ED9EBA1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8F1BBCDC;
        else
            f = b ^ c ^ d, k = 0xCA62C1D6;
        uint32_t next = turned(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = turned(b, 30);
        b = a;
        a = next;
    }
    s->h[0] += a;
    s->h[1] += b;
    s->h[2] += c;
    s->h[3] += d;
    s->h[4] += e;
}

static void take(struct sha1 *s, const void *data, size_t n)
{
    const uint8_t *at = data;
    size_t held = s->size % BLOCK;
    s->size += n;
    if (held) {
        size_t fits = BLOCK - held < n ? BLOCK - held : n;
        memcpy(s->block + held, at, fits);
        at += fits;
        n -= fits;
        if (held + fits < BLOCK)
            return;
        take_block(s, s->block);
    }
    for (; n >= BLOCK; at += BLOCK, n -= BLOCK)
        take_block(s, at);
    memcpy(s->block, at, n);
}

static void end(struct sha1 *s, uint8_t digest[DIGEST])
{
    uint64_t bits = s->size * 8;
    uint8_t length[8];
    take(s, "\x80", 1);
    while (s->size % BLOCK != BLOCK - 8)
        take(s, "", 1);
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    take(s, length, 8);
    for (int i = 0; i < DIGEST; i++)
        digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

static void begin(struct sha1 *s, const char *secret, uint8_t pad)
{
    static const uint32_t FIRST[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
    uint8_t key[BLOCK] = {0};
    memcpy(key, secret, strlen(secret));
    for (int i = 0; i < BLOCK; i++)
        key[i] ^= pad;
    memcpy(s->h, FIRST, sizeof FIRST);
    s->size = 0;
    take(s, key, BLOCK);
}

void sign_as(const char *account)
{
    const char *colon = strchr(account, ':');
    if (!colon || colon == account || (size_t)(colon - account) >= sizeof access_key || strlen(colon + 1) > BLOCK)
        fail("--account is KEY:SECRET, with a key below %zu and a secret of at most %d bytes", sizeof access_key, BLOCK);
    memcpy(access_key, account, (size_t)(colon - account));
    begin(&inner, colon + 1, 0x36);
    begin(&outer, colon + 1, 0x5C);
}

int signs(void)
{
    return access_key[0] != 0;
}

/* What JSON texts hold, name by name; of escapes there are \u0001 and \u0002 alone. */
static void take_values(struct sha1 *s, const char *at, const char *to)
{
    int value = 0, text = 0;
    for (const char *from = at; at < to; at++) {
        if (*at == '"') {
            if (text && value)
                take(s, from, (size_t)(at - from));
            if (text)
                value = !value;
            text = !text;
            from = at + 1;
        } else if (text && *at == '\\') {
            if (value)
                take(s, from, (size_t)(at - from));
            take(s, at[5] == '1' ? "\1" : "\2", 1);
            at += 5;
            from = at + 1;
        }
    }
}

char *put_signature(char *at, const char *ext, const void *body, size_t body_size)
{
    struct sha1 s = inner, o = outer;
    uint8_t digest[DIGEST + 1] = {0};
    take(&s, access_key, strlen(access_key));
    take_values(&s, ext, at);
    take(&s, body, body_size);
    end(&s, digest);
    take(&o, digest, DIGEST);
    end(&o, digest);
    at += sprintf(at, "%s\"AccessKey\":\"%s\",\"Signature\":\"", at == ext ? "" : ",", access_key);
    for (int i = 0; i < DIGEST; i += 3) {
        uint32_t three = (uint32_t)digest[i] << 16 | (uint32_t)digest[i + 1] << 8 | (i + 2 < DIGEST ? digest[i + 2] : 0);
        for (int shift = 18; shift >= 0; shift -= 6)
            *at++ = BASE64[three >> shift & 63];
    }
    at[-1] = '=';
    *at++ = '"';
    return at;
}
