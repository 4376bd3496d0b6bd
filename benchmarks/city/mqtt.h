/* What the generator and the floor both know of MQTT: where a packet ends, and which filter matches a topic. */

#ifndef CITY_MQTT_H
#define CITY_MQTT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECT = 1, CONNACK = 2, PUBLISH = 3, PUBACK = 4, SUBSCRIBE = 8, SUBACK = 9, PINGREQ = 12, DISCONNECT = 14 };

static void die(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static void *room(size_t size) {
    void *found = calloc(1, size ? size : 1);
    if (!found) die("out of memory");
    return found;
}

static inline int u16(const uint8_t *at) { return at[0] << 8 | at[1]; }

static inline uint8_t *put16(uint8_t *at, int value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return at + 2;
}

static inline uint8_t *put_length(uint8_t *at, uint32_t value) {
    while (value >= 128) {
        *at++ = (uint8_t)(value | 128);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* A variable length at *at, which moves behind it. -1: not all of it is there; -2: it is longer than MQTT allows. */
static inline int64_t take_length(const uint8_t **at, const uint8_t *end) {
    uint32_t value = 0;
    for (int shift = 0; shift < 28; shift += 7) {
        if (*at >= end) return -1;
        uint8_t byte = *(*at)++;
        value |= (uint32_t)(byte & 127) << shift;
        if (!(byte & 128)) return value;
    }
    return -2;
}

/* The packet at `at`: its body and its end. 0: not all of it is there. */
static inline int cut(const uint8_t *at, const uint8_t *end, const uint8_t **body, const uint8_t **after) {
    if (end - at < 2) return 0;
    const uint8_t *pos = at + 1;
    int64_t size = take_length(&pos, end);
    if (size == -2) die("a packet's length is malformed");
    if (size < 0 || end - pos < size) return 0;
    *body = pos;
    *after = pos + size;
    return 1;
}

/* Filters with + and #; a shared one without its "$share/GROUP/". */
static int matches(const char *filter, const char *topic) {
    for (;;) {
        if (filter[0] == '#') return 1;
        if (filter[0] == '+') {
            filter++;
            while (*topic && *topic != '/') topic++;
        } else {
            while (*filter && *filter != '/' && *filter == *topic) filter++, topic++;
        }
        if (!*filter && !*topic) return 1;
        if (!*topic && !strcmp(filter, "/#")) return 1;
        if (*filter != '/' || *topic != '/') return 0;
        filter++, topic++;
    }
}

static const char *unshared(const char *filter) {
    if (strncmp(filter, "$share/", 7)) return filter;
    const char *rest = strchr(filter + 7, '/');
    return rest ? rest + 1 : filter;
}

#endif
