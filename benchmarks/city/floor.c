/* The floor: what it costs to read and write a row's bytes by epoll, without a broker's work.

    floor PORT [next PORT] [drop N] [double N]

It answers CONNECT, SUBSCRIBE, PUBLISH with QoS 1 and PINGREQ, and passes each publication's bytes on as they came to
whom the first look at its topic has found. It checks nothing, stores nothing, and limits nothing. What a turn of the
loop brings for a connection leaves in one write. `next`: all publications go to the floor at that port, too. `drop N`
and `double N`: every N-th delivery is left out or goes out twice, to test who counts. */

#define _GNU_SOURCE
#include "mqtt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 1 << 18, FILES = 65536, TABLE = 1 << 16 };

typedef struct {
    uint8_t *in, *out;
    size_t in_size, out_size, out_taken, out_space;
    int open, dirty, five, blocked, is_next;
    char *filter;
} Link;

typedef struct {
    char *topic;
    size_t size;
    int *links, count, groups; /* of a shared filter one is taken in turn: groups of it follow each other */
    int *group_sizes, turn;
} Entry;

static Link links[FILES];
static Entry table[TABLE];
static int dirty[FILES], dirty_count, highest, epoll_fd, next_fd = -1, drop_every, double_every, deliveries, known;

static void out(int fd, const uint8_t *bytes, size_t size) {
    Link *link = &links[fd];
    if (link->out_size + size > link->out_space) {
        link->out_space = (link->out_size + size) * 2;
        link->out = realloc(link->out, link->out_space);
        if (!link->out) die("out of memory");
    }
    memcpy(link->out + link->out_size, bytes, size);
    link->out_size += size;
    if (!link->dirty) link->dirty = 1, dirty[dirty_count++] = fd;
}

static void arm(int fd, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (links[fd].blocked ? EPOLLOUT : 0), .data.fd = fd};
    epoll_ctl(epoll_fd, operation, fd, &event);
}

static void forget(void) {
    static const Entry nobody;
    for (int i = 0; known && i < TABLE; i++) {
        free(table[i].topic), free(table[i].links), free(table[i].group_sizes);
        table[i] = nobody;
    }
    known = 0;
}

static void drop(int fd) {
    Link *link = &links[fd];
    close(fd);
    free(link->in), free(link->out), free(link->filter);
    memset(link, 0, sizeof *link);
    forget();
}

static void flush(int fd) {
    Link *link = &links[fd];
    link->dirty = 0;
    while (link->open && link->out_taken < link->out_size) {
        ssize_t count = send(fd, link->out + link->out_taken, link->out_size - link->out_taken, MSG_NOSIGNAL);
        if (count < 0) break;
        link->out_taken += (size_t)count;
    }
    if (link->out_taken == link->out_size) link->out_taken = link->out_size = 0;
    int blocked = link->out_size > 0;
    if (link->open && blocked != link->blocked) link->blocked = blocked, arm(fd, EPOLL_CTL_MOD);
}

/* Who is to have the topic; found once, and forgotten when somebody subscribes or goes. */
static Entry *who(const uint8_t *topic, size_t size) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++) hash = (hash ^ topic[i]) * 16777619u;
    Entry *entry = &table[hash % TABLE];
    while (entry->topic && (entry->size != size || memcmp(entry->topic, topic, size)))
        entry = entry == &table[TABLE - 1] ? table : entry + 1;
    if (entry->topic) return entry;
    known++;
    entry->topic = strndup((const char *)topic, size);
    entry->size = size;
    entry->links = room(sizeof(int) * (size_t)(highest + 1));
    entry->group_sizes = room(sizeof(int) * (size_t)(highest + 1));
    for (int fd = 0; fd <= highest; fd++) {
        const char *filter = links[fd].filter;
        if (!filter || !matches(unshared(filter), entry->topic)) continue;
        int first = fd; /* of those with the same shared filter */
        if (filter[0] == '$')
            for (first = 0; !links[first].filter || strcmp(links[first].filter, filter); first++) {}
        if (first != fd) continue;
        int size_of_group = 0;
        for (int other = fd; other <= highest; other++) {
            if (other != fd && (filter[0] != '$' || !links[other].filter || strcmp(links[other].filter, filter))) continue;
            entry->links[entry->count++] = other;
            size_of_group++;
        }
        entry->group_sizes[entry->groups++] = size_of_group;
    }
    return entry;
}

static void deliver(int fd, const uint8_t *packet, size_t size) {
    deliveries++;
    if (drop_every && deliveries % drop_every == 0) return;
    out(fd, packet, size);
    if (double_every && deliveries % double_every == 0) out(fd, packet, size);
}

static void publish(int from, const uint8_t *packet, const uint8_t *body, const uint8_t *end) {
    Entry *entry = who(body + 2, (size_t)u16(body));
    int at = 0;
    for (int group = 0; group < entry->groups; at += entry->group_sizes[group++])
        deliver(entry->links[at + entry->turn % entry->group_sizes[group]], packet, (size_t)(end - packet));
    entry->turn++;
    if (next_fd >= 0 && from != next_fd) out(next_fd, packet, (size_t)(end - packet));
    if (packet[0] & 6) {
        const uint8_t *id = body + 2 + u16(body), ack[4] = {PUBACK << 4, 2, id[0], id[1]};
        out(from, ack, 4);
    }
}

static void take(int fd, const uint8_t *packet, const uint8_t *body, const uint8_t *end) {
    static const uint8_t connack[] = {0x20, 2, 0, 0}, connack_5[] = {0x20, 3, 0, 0, 0}, pong[] = {0xd0, 0};
    Link *link = &links[fd];
    switch (packet[0] >> 4) {
    case CONNECT:
        link->five = body[6] == 5;
        link->five ? out(fd, connack_5, 5) : out(fd, connack, 4);
        break;
    case SUBSCRIBE: {
        const uint8_t *at = body + 2 + link->five, suback[] = {0x90, 3, body[0], body[1], end[-1] & 3},
                      suback_5[] = {0x90, 4, body[0], body[1], 0, end[-1] & 3};
        forget();
        free(link->filter);
        link->filter = strndup((const char *)at + 2, (size_t)u16(at));
        link->five ? out(fd, suback_5, 6) : out(fd, suback, 5);
        break;
    }
    case PUBLISH: publish(fd, packet, body, end); break;
    case PINGREQ: out(fd, pong, 2); break;
    default: break;
    }
}

static void receive(int fd) {
    static uint8_t scratch[READ_BYTES * 2];
    Link *link = &links[fd];
    memcpy(scratch, link->in, link->in_size);
    ssize_t count = recv(fd, scratch + link->in_size, READ_BYTES, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
        drop(fd);
        return;
    }
    const uint8_t *at = scratch, *end = scratch + link->in_size + count, *body, *after;
    for (; cut(at, end, &body, &after); at = after) take(fd, at, body, after);
    link->in_size = (size_t)(end - at);
    if (link->in_size > READ_BYTES) die("a packet is too long");
    link->in = realloc(link->in, link->in_size ? link->in_size : 1);
    memcpy(link->in, at, link->in_size);
}

static void adopt(int fd) {
    int one = 1;
    if (fd >= FILES) die("too many connections");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    links[fd].open = 1;
    if (fd > highest) highest = fd;
    arm(fd, EPOLL_CTL_ADD);
}

static struct sockaddr_in loopback(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int main(int count, char **words) {
    if (count < 2 || count % 2) die("usage: floor PORT [next PORT] [drop N] [double N]");
    epoll_fd = epoll_create1(0);
    for (int i = 2; i < count; i += 2) {
        int value = atoi(words[i + 1]);
        if (!strcmp(words[i], "drop")) drop_every = value;
        else if (!strcmp(words[i], "double")) double_every = value;
        else if (!strcmp(words[i], "next")) {
            static const uint8_t hello[] = {0x10, 16, 0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0, 0, 4, 'n', 'e', 'x', 't'};
            struct sockaddr_in address = loopback(value);
            next_fd = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(next_fd, (struct sockaddr *)&address, sizeof address)) die("the next floor does not answer");
            fcntl(next_fd, F_SETFL, O_NONBLOCK);
            adopt(next_fd);
            out(next_fd, hello, sizeof hello);
            flush(next_fd);
        } else die("unknown option");
    }
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    struct sockaddr_in address = loopback(atoi(words[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 4096)) die("the port is not free");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[512];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(epoll_fd, events, 512, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) adopt(fd);
                continue;
            }
            if (links[fd].open && events[i].events & EPOLLOUT) flush(fd);
            if (links[fd].open && events[i].events & ~(uint32_t)EPOLLOUT) receive(fd);
        }
        for (int i = 0; i < dirty_count; i++) flush(dirty[i]);
        dirty_count = 0;
    }
}
