/* The load generator: publishers and subscribers, each on a TCP connection of its own, under one epoll.

Standard input holds a plan, one order a line (benchmarks/city/plan.py writes it); standard output gets one line of
JSON. A failure is one line on standard error, with exit status 1.

Closed loop: a publisher has at most `window` messages under way. A message is under way until all its deliveries have
come, and with QoS 1 its PUBACK too. Open loop (`rate`): a message is sent when it is due, whatever is under way, and
its latency counts from that moment.

Before anything counts, every publisher sends a probe to each of its topics until all deliveries of it have come, so
that brokers know each other's subscriptions, and waits until the brokers are at rest. What is counted as lost
afterwards is lost.

Each payload begins with a Stamp. For each topic and subscriber (or shared group) a bitmap of the last SEEN sequence
numbers tells what came twice. */

#define _GNU_SOURCE
#include "mqtt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    READ_BYTES = 1 << 18,
    SEEN = 2048,            /* sequence numbers */
    POOL = 1 << 16,         /* random bytes that payloads are cut from */
    MOST_UNDER_WAY = 32768, /* of a publisher: packet identifiers are 16 bits */
    MOST_BLOCKED = 1 << 20, /* bytes a publisher writes ahead of its socket */
    BUCKETS = 64 * 64,      /* of latency: 64 for each power of two of nanoseconds */
    PROBE = -1,
    NONE = -1,
};

static const double ANSWER = 10.0;    /* seconds for one answer while clients connect */
static const double SETTLE = 20.0;    /* seconds until every topic's path is there */
static const double ASK_AGAIN = 0.25; /* seconds between probes */
static const double REST = 20.0;      /* seconds, at most, until the brokers have put themselves in order */
static const double RESTING = 0.05;   /* of a processor: those that take less have */
static const double GIVE_UP = 5.0;    /* seconds after which a message does not hold its publisher up any more */
static const double QUIET = 2.0;      /* seconds without an arrival after which what is missing is lost */
static const double DRAIN = 30.0;     /* seconds for all that is under way in the end */
static const char MAGIC[4] = "city";

typedef struct {
    char magic[4];
    uint32_t publisher, topic;
    int32_t number;      /* of the publisher's messages; PROBE */
    uint32_t sequence;   /* of the topic's messages, from 1 */
    uint32_t offset;     /* in the pool */
    uint64_t due;        /* nanoseconds */
    uint32_t size;       /* bytes of the payload */
    uint32_t reserved;
} Stamp;

typedef struct {
    uint32_t newest;
    uint8_t probed;
    uint64_t seen[SEEN / 64];
} Pair; /* a topic and a subscriber or shared group */

typedef struct {
    uint8_t *bytes;
    size_t size, taken, space;
} Buffer;

typedef struct {
    int32_t number;
    uint16_t waits_for; /* deliveries, and the PUBACK; 0: free */
    uint8_t acknowledged;
    uint64_t sent;
} Slot;

typedef struct {
    int fd, version, wants_to_write;
    Buffer in, out;
    int publisher;  /* index, or NONE */
    int32_t *pairs; /* by topic; NONE */
    char *filter;
    uint64_t asked; /* when CONNECT was sent; a connection that only connects */
    int answered;
} Client;

typedef struct {
    Client *client;
    uint32_t first, count; /* topics */
    uint32_t *sequences;
    int32_t next;
    uint32_t window, maximum, under_way, ring;
    Slot *slots;
    int dirty;
} Publisher;

typedef struct {
    char *name;
    uint8_t *head;
    size_t head_size;
    uint32_t deliveries, pairs_from, pairs_to;
    uint32_t sent;
} Topic;

static double idle, warm = 0.3, seconds = 1.5, rate;
static int qos, window = 1, bulk = 1, least = 60, most = 400, properties;
static int login, connect_port, connect_version = 4;
static int pids[1024], pid_count;
static uint64_t state = 88172645463325252ull;

static Client *clients;
static Publisher *publishers;
static Topic *topics;
static Pair *pairs;
static size_t client_count, client_space, publisher_count, topic_count, pair_count;
static int epoll_fd, settled;
static uint32_t *dirty;
static size_t dirty_count;
static uint8_t pool[POOL + 65536], property_block[128];
static size_t property_size;

static uint64_t now_ns; /* of the last look at the clock */
static uint64_t last_arrival;
static uint64_t published, delivered, doubled, disordered, wrong, given_up, refused, unsettled;
static uint64_t latencies[BUCKETS], latency_count;
static int measuring;

static uint64_t clock_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return now_ns = (uint64_t)at.tv_sec * 1000000000ull + (uint64_t)at.tv_nsec;
}

static uint64_t after(double wait) { return clock_ns() + (uint64_t)(wait * 1e9); }

static uint32_t any(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) * below >> 32);
}

static void fail(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vfprintf(stderr, format, words);
    va_end(words);
    fputc('\n', stderr);
    exit(1);
}

/* --- bytes to write and bytes that were read ---------------------------------------------------------------------- */

static uint8_t *reserve(Buffer *buffer, size_t more) {
    if (buffer->size + more > buffer->space) {
        buffer->space = (buffer->size + more) * 2;
        buffer->bytes = realloc(buffer->bytes, buffer->space);
        if (!buffer->bytes) die("out of memory");
    }
    return buffer->bytes + buffer->size;
}

static void append(Buffer *buffer, const void *bytes, size_t size) {
    memcpy(reserve(buffer, size), bytes, size);
    buffer->size += size;
}

static void watch(Client *client, int writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.u64 = (uint64_t)(client - clients)};
    if (epoll_ctl(epoll_fd, client->wants_to_write < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, client->fd, &event))
        fail("epoll: %s", strerror(errno));
    client->wants_to_write = writing;
}

static void flush(Client *client) {
    Buffer *out = &client->out;
    while (out->taken < out->size) {
        ssize_t count = send(client->fd, out->bytes + out->taken, out->size - out->taken, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno != EAGAIN) fail("the broker closed a connection: %s", strerror(errno));
        if (count < 0) break;
        out->taken += (size_t)count;
    }
    if (out->taken == out->size) out->taken = out->size = 0;
    int blocked = out->size > 0;
    if (blocked != client->wants_to_write) watch(client, blocked);
}

/* --- publishing --------------------------------------------------------------------------------------------------- */

static void touch(Publisher *publisher) {
    if (publisher->dirty) return;
    publisher->dirty = 1;
    dirty[dirty_count++] = (uint32_t)(publisher - publishers);
}

static Slot *slot_of(Publisher *publisher, int32_t number) { return &publisher->slots[(uint32_t)number % publisher->ring]; }

/* Append a publication to what the publisher writes. `number` PROBE: it counts for nothing. */
static void publish(Publisher *publisher, uint32_t index, int32_t number, uint64_t due) {
    Topic *topic = &topics[index];
    uint32_t size = (uint32_t)least + any((uint32_t)(most - least + 1));
    int level = number == PROBE ? 0 : qos, five = publisher->client->version == 5;
    size_t block = five ? property_size : 0;
    size_t length = topic->head_size + (level ? 2 : 0) + block + size;
    uint8_t *begin = reserve(&publisher->client->out, length + 5), *at = begin;
    *at++ = (uint8_t)(PUBLISH << 4 | level << 1);
    at = put_length(at, (uint32_t)length);
    memcpy(at, topic->head, topic->head_size);
    at += topic->head_size;
    if (level) at = put16(at, (int)((uint32_t)number % publisher->ring) + 1);
    if (block) memcpy(at, property_block, block);
    at += block;
    Stamp stamp = {.publisher = (uint32_t)(publisher - publishers), .topic = index, .number = number, .due = due};
    memcpy(stamp.magic, MAGIC, 4);
    stamp.offset = any(POOL), stamp.size = size;
    if (number != PROBE) {
        stamp.sequence = ++publisher->sequences[index - publisher->first];
        topic->sent++;
        published++;
        Slot *slot = slot_of(publisher, number);
        *slot = (Slot){.number = number, .waits_for = (uint16_t)(topic->deliveries + (level ? 1 : 0)), .sent = now_ns};
        if (slot->waits_for) publisher->under_way++;
    }
    memcpy(at, &stamp, sizeof stamp);
    memcpy(at + sizeof stamp, pool + stamp.offset, size - sizeof stamp);
    publisher->client->out.size += (size_t)(at + size - begin);
}

static uint32_t next_topic(const Publisher *publisher) {
    return publisher->first + (publisher->count > 1 ? any(publisher->count) : 0);
}

static int may_send(Publisher *publisher) {
    if (publisher->under_way >= publisher->window) return 0;
    while (slot_of(publisher, publisher->next)->waits_for) publisher->next++; /* a free one is there: window < ring */
    return publisher->client->out.size - publisher->client->out.taken < MOST_BLOCKED;
}

static void refill(Publisher *publisher) {
    if (publisher->under_way && publisher->window - publisher->under_way < (uint32_t)bulk) return;
    while (may_send(publisher)) publish(publisher, next_topic(publisher), publisher->next++, now_ns);
    flush(publisher->client);
}

static void refill_dirty(void) {
    for (size_t i = 0; i < dirty_count; i++) {
        publishers[dirty[i]].dirty = 0;
        refill(&publishers[dirty[i]]);
    }
    dirty_count = 0;
}

static void came(Publisher *publisher, Slot *slot) {
    if (--slot->waits_for) return;
    publisher->under_way--;
    if (!rate) touch(publisher);
}

static void give_up_old(void) {
    uint64_t old = now_ns - (uint64_t)(GIVE_UP * 1e9);
    for (size_t i = 0; i < publisher_count; i++) {
        Publisher *publisher = &publishers[i];
        for (uint32_t k = 0; publisher->under_way && k < publisher->ring; k++) {
            Slot *slot = &publisher->slots[k];
            if (!slot->waits_for || slot->sent > old) continue;
            slot->waits_for = 0;
            publisher->under_way--;
            given_up++;
            if (!rate) touch(publisher);
        }
    }
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static void note_latency(uint64_t due) {
    uint64_t took = now_ns > due ? now_ns - due : 1;
    int power = 63 - __builtin_clzll(took);
    uint64_t part = power >= 6 ? (took >> (power - 6)) & 63 : (took << (6 - power)) & 63;
    latencies[power * 64 + (int)part]++;
    latency_count++;
}

/* True if the sequence number has not come before. */
static int is_new(Pair *pair, uint32_t sequence) {
    if (sequence > pair->newest) {
        uint32_t gap = sequence - pair->newest;
        if (gap >= SEEN) memset(pair->seen, 0, sizeof pair->seen);
        else
            for (uint32_t i = pair->newest + 1; i != sequence; i++) pair->seen[i / 64 % (SEEN / 64)] &= ~(1ull << i % 64);
        pair->newest = sequence;
        pair->seen[sequence / 64 % (SEEN / 64)] |= 1ull << sequence % 64;
        return 1;
    }
    uint64_t *word = &pair->seen[sequence / 64 % (SEEN / 64)], bit = 1ull << sequence % 64;
    if (pair->newest - sequence >= SEEN || *word & bit) return 0;
    *word |= bit;
    disordered++;
    return 1;
}

static void take_publication(Client *client, int first, const uint8_t *at, const uint8_t *end) {
    if (end - at < 2 || end - at < 2 + u16(at)) die("a publication is malformed");
    const uint8_t *name = at + 2;
    size_t name_size = (size_t)u16(at);
    at = name + name_size;
    int level = first >> 1 & 3;
    if (level == 1) {
        uint8_t *ack = reserve(&client->out, 4);
        ack[0] = PUBACK << 4, ack[1] = 2, ack[2] = at[0], ack[3] = at[1];
        client->out.size += 4;
        at += 2;
    }
    if (client->version == 5) {
        int64_t block = take_length(&at, end);
        if (block < 0 || end - at < block) die("a publication's properties are malformed");
        if (settled && (size_t)block + 1 < property_size) wrong++; /* its properties are not those that were published */
        at += block;
    }
    Stamp stamp;
    if (end - at < (ptrdiff_t)sizeof stamp) {
        wrong++;
        return;
    }
    memcpy(&stamp, at, sizeof stamp);
    if (memcmp(stamp.magic, MAGIC, 4) || stamp.size != (size_t)(end - at) || stamp.topic >= topic_count ||
        name_size + 2 != topics[stamp.topic].head_size || memcmp(name, topics[stamp.topic].name, name_size) ||
        client->pairs == NULL || client->pairs[stamp.topic] == NONE ||
        memcmp(end - 8, pool + stamp.offset + stamp.size - sizeof stamp - 8, 8)) {
        wrong++;
        return;
    }
    Pair *pair = &pairs[client->pairs[stamp.topic]];
    if (stamp.number == PROBE) {
        if (!pair->probed) unsettled--;
        pair->probed = 1;
        return;
    }
    if (!is_new(pair, stamp.sequence)) {
        doubled++;
        return;
    }
    delivered++;
    if (rate && measuring) note_latency(stamp.due);
    Publisher *publisher = &publishers[stamp.publisher];
    Slot *slot = slot_of(publisher, stamp.number);
    if (slot->number == stamp.number && slot->waits_for) came(publisher, slot);
}

static void take_ack(Client *client, const uint8_t *at, const uint8_t *end) {
    if (client->publisher == NONE || end - at < 2) die("a PUBACK came that nobody waits for");
    if (end - at > 2 && at[2] >= 0x80) refused++;
    Publisher *publisher = &publishers[client->publisher];
    int number = u16(at) - 1;
    if (number < 0 || (uint32_t)number >= publisher->ring) die("a PUBACK has an unknown packet identifier");
    Slot *slot = &publisher->slots[number];
    if (!slot->waits_for || slot->acknowledged) return;
    slot->acknowledged = 1;
    came(publisher, slot);
}

static void take_packet(Client *client, int first, const uint8_t *at, const uint8_t *end) {
    switch (first >> 4) {
    case PUBLISH: take_publication(client, first, at, end); break;
    case PUBACK: take_ack(client, at, end); break;
    case CONNACK:
        if (end - at < 2 || at[1]) fail("CONNECT was refused with code %d", end - at < 2 ? -1 : at[1]);
        client->answered = 1;
        if (client->asked) {
            delivered++;
            if (measuring) note_latency(client->asked);
        }
        break;
    case SUBACK: case PINGREQ + 1: break;
    case DISCONNECT: fail("the broker sent DISCONNECT with reason 0x%02x", end > at ? at[0] : 0); break;
    default: fail("a packet of type %d came", first >> 4);
    }
}

static void receive(Client *client) {
    static uint8_t scratch[READ_BYTES * 2];
    Buffer *in = &client->in;
    if (in->size > READ_BYTES) die("a packet is longer than all that were published");
    memcpy(scratch, in->bytes, in->size);
    ssize_t count = recv(client->fd, scratch + in->size, READ_BYTES, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) fail("the broker closed a connection%s", count ? strerror(errno) : "");
    last_arrival = clock_ns();
    const uint8_t *at = scratch, *end = scratch + in->size + count, *body, *next;
    for (; cut(at, end, &body, &next); at = next) take_packet(client, *at, body, next);
    in->size = 0;
    append(in, at, (size_t)(end - at));
    if (client->out.size) flush(client);
}

static int serve(int timeout_ms) {
    struct epoll_event events[512];
    int count = epoll_wait(epoll_fd, events, 512, timeout_ms);
    for (int i = 0; i < count; i++) {
        Client *client = &clients[events[i].data.u64];
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(client);
        if (events[i].events & EPOLLOUT) {
            flush(client);
            if (client->publisher != NONE && !client->out.size && !rate) touch(&publishers[client->publisher]);
        }
    }
    clock_ns();
    return count;
}

/* --- clients ------------------------------------------------------------------------------------------------------ */

static Client *new_client(int version) {
    if (client_count == client_space) die("the plan has more clients than it said");
    Client *client = &clients[client_count++];
    client->version = version, client->publisher = NONE, client->wants_to_write = -1, client->fd = -1;
    return client;
}

static void write_connect(Client *client, int keep, const char *kind) {
    uint8_t packet[8], body[300], *at = body;
    char id[64];
    int size = snprintf(id, sizeof id, "city-%d-%s-%zu", getpid(), kind, (size_t)(client - clients));
    at = put16(at, 4);
    memcpy(at, "MQTT", 4);
    at += 4;
    *at++ = (uint8_t)client->version;
    *at++ = (uint8_t)((keep ? 0 : 2) | (login ? 0xc0 : 0));
    at = put16(at, 300);
    if (client->version == 5) {
        *at++ = keep ? 5 : 0;
        if (keep) memcpy(at, "\x11\0\0\x0e\x10", 5), at += 5; /* session expiry: an hour */
    }
    at = put16(at, size);
    memcpy(at, id, (size_t)size);
    at += size;
    for (int i = 0; login && i < 2; i++) { /* user name and password: the client's name again */
        at = put16(at, size);
        memcpy(at, id, (size_t)size);
        at += size;
    }
    uint8_t *end = packet;
    *end++ = CONNECT << 4;
    end = put_length(end, (uint32_t)(at - body));
    append(&client->out, packet, (size_t)(end - packet));
    append(&client->out, body, (size_t)(at - body));
}

static void open_socket(Client *client, int port, int blocking) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    client->fd = socket(AF_INET, SOCK_STREAM | (blocking ? 0 : SOCK_NONBLOCK), 0);
    if (client->fd < 0) fail("socket: %s", strerror(errno));
    int one = 1;
    setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(client->fd, (struct sockaddr *)&address, sizeof address) && (blocking || errno != EINPROGRESS))
        fail("port %d: %s", port, strerror(errno));
}

/* Wait for a packet of this type; what comes of another type is an error. Returns its body, in `packet`. */
static const uint8_t *answer(Client *client, int type, uint8_t *packet, size_t space, const uint8_t **end) {
    size_t size = 0;
    const uint8_t *body;
    for (;;) {
        struct pollfd wait = {.fd = client->fd, .events = POLLIN};
        if (poll(&wait, 1, (int)(ANSWER * 1000)) != 1) fail("no answer within %.0f s", ANSWER);
        ssize_t count = recv(client->fd, packet + size, 1, 0);
        if (count <= 0) fail("the broker closed a connection while clients connected");
        if (++size == space) die("an answer is too long");
        if (cut(packet, packet + size, &body, end)) break;
    }
    if (packet[0] >> 4 != type) fail("a packet of type %d came instead of %d", packet[0] >> 4, type);
    return body;
}

/* The window that the broker's Receive Maximum leaves. */
static uint32_t received_maximum(const uint8_t *at, const uint8_t *end) {
    static const uint8_t sizes[256] = {[0x11] = 4, [0x13] = 2, [0x21] = 2, [0x22] = 2, [0x24] = 1, [0x25] = 1,
                                       [0x27] = 4, [0x28] = 1, [0x29] = 1, [0x2a] = 1};
    at += 2;
    if (take_length(&at, end) < 0) return 65535;
    while (at < end) {
        uint8_t kind = *at++;
        if (kind == 0x21) return (uint32_t)u16(at);
        if (kind == 0x26) at += 2 + u16(at), at += 2 + u16(at);
        else at += sizes[kind] ? sizes[kind] : 2 + u16(at);
    }
    return 65535;
}

static uint32_t join(Client *client, int port, int keep, const char *kind) {
    uint8_t packet[512];
    const uint8_t *end;
    open_socket(client, port, 1);
    write_connect(client, keep, kind);
    if (send(client->fd, client->out.bytes, client->out.size, MSG_NOSIGNAL) < 0) fail("%s", strerror(errno));
    client->out.size = 0;
    const uint8_t *body = answer(client, CONNACK, packet, sizeof packet, &end);
    if (body[1]) fail("CONNECT was refused with code %d", body[1]);
    return client->version == 5 ? received_maximum(body, end) : 65535;
}

static void begin(Client *client) {
    fcntl(client->fd, F_SETFL, fcntl(client->fd, F_GETFL) | O_NONBLOCK);
    watch(client, 0);
}

static void add_subscriber(int port, int version, int keep, const char *filter) {
    Client *client = new_client(version);
    uint8_t packet[1024], *at = packet;
    const uint8_t *end;
    join(client, port, keep, "s");
    client->filter = strdup(filter);
    size_t size = strlen(filter);
    *at++ = SUBSCRIBE << 4 | 2;
    at = put_length(at, (uint32_t)(5 + size + (version == 5)));
    at = put16(at, 1);
    if (version == 5) *at++ = 0;
    at = put16(at, (int)size);
    memcpy(at, filter, size);
    at += size;
    *at++ = (uint8_t)qos;
    if (send(client->fd, packet, (size_t)(at - packet), MSG_NOSIGNAL) < 0) fail("%s", strerror(errno));
    const uint8_t *body = answer(client, SUBACK, packet, sizeof packet, &end);
    if (end[-1] != qos || end - body < 3) fail("SUBSCRIBE was answered with code %d", end[-1]);
    begin(client);
}

static void add_publisher(int port, int version, uint32_t first, uint32_t count) {
    Client *client = new_client(version);
    Publisher *publisher = &publishers[publisher_count];
    uint32_t maximum = join(client, port, 0, "p");
    client->publisher = (int)publisher_count++;
    if (first + count > topic_count) die("the plan names a topic that it does not have");
    publisher->client = client, publisher->first = first, publisher->count = count;
    publisher->sequences = room(count * sizeof *publisher->sequences);
    publisher->window = qos && maximum < (uint32_t)window ? maximum : (uint32_t)window;
    publisher->maximum = maximum;
    begin(client);
}

static void give_slots(void) {
    for (size_t i = 0; i < publisher_count; i++) {
        Publisher *publisher = &publishers[i];
        uint32_t wanted = rate ? (publisher_count > 16 ? 512 : MOST_UNDER_WAY) : publisher->window * 2;
        publisher->ring = wanted > MOST_UNDER_WAY ? MOST_UNDER_WAY : wanted < 16 ? 16 : wanted;
        if (rate) publisher->window = qos && publisher->maximum < publisher->ring ? publisher->maximum : publisher->ring - 1;
        publisher->slots = room(publisher->ring * sizeof(Slot));
        for (uint32_t k = 0; k < publisher->ring; k++) publisher->slots[k].number = PROBE;
    }
}

/* Which subscriber is to get which topic. Subscribers of one shared filter are as one. */
static void match_all(void) {
    size_t space = 0;
    for (uint32_t t = 0; t < topic_count; t++) {
        topics[t].pairs_from = (uint32_t)pair_count;
        for (size_t c = 0; c < client_count; c++) {
            Client *client = &clients[c];
            if (!client->filter) continue;
            if (!client->pairs) {
                client->pairs = room(topic_count * sizeof *client->pairs);
                for (size_t i = 0; i < topic_count; i++) client->pairs[i] = NONE;
            }
            if (!matches(unshared(client->filter), topics[t].name)) continue;
            int known = NONE;
            for (size_t o = 0; o < c && client->filter[0] == '$' && known == NONE; o++)
                if (clients[o].filter && !strcmp(clients[o].filter, client->filter)) known = clients[o].pairs[t];
            if (known == NONE) {
                if (pair_count == space) {
                    space = space ? space * 2 : 1024;
                    pairs = realloc(pairs, space * sizeof *pairs);
                    if (!pairs) die("out of memory");
                }
                memset(&pairs[pair_count], 0, sizeof *pairs);
                known = (int)pair_count++;
                topics[t].deliveries++;
            }
            client->pairs[t] = known;
        }
        topics[t].pairs_to = (uint32_t)pair_count;
    }
}

/* --- what the kernel says ----------------------------------------------------------------------------------------- */

typedef struct {
    double user, system, own_user, own_system, machine, at;
    uint64_t delivered, published;
} Account;

static double tick(void) { return 1.0 / (double)sysconf(_SC_CLK_TCK); }

static void add_process(int pid, Account *account) {
    char path[64], line[1024];
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail("the broker's process %d has ended", pid);
    fclose(file);
    char *rest = strrchr(line, ')');
    if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        die("/proc/PID/stat is not as expected");
    account->user += (double)user * tick();
    account->system += (double)system * tick();
}

static double machine_seconds(void) {
    unsigned long long user, nice, system, idle, wait, hard, soft, steal;
    FILE *file = fopen("/proc/stat", "r");
    if (!file || fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &wait, &hard,
                        &soft, &steal) != 8)
        die("/proc/stat is not as expected");
    fclose(file);
    return (double)(user + nice + system + steal) * tick();
}

static Account account(void) {
    Account found = {.delivered = delivered, .published = published};
    struct rusage own;
    for (int i = 0; i < pid_count; i++) add_process(pids[i], &found);
    getrusage(RUSAGE_SELF, &own);
    found.own_user = (double)own.ru_utime.tv_sec + (double)own.ru_utime.tv_usec * 1e-6;
    found.own_system = (double)own.ru_stime.tv_sec + (double)own.ru_stime.tv_usec * 1e-6;
    found.machine = machine_seconds();
    found.at = (double)clock_ns() * 1e-9;
    return found;
}

/* --- the run ------------------------------------------------------------------------------------------------------ */

static void settle(void) {
    uint64_t deadline = after(SETTLE), again = 0;
    unsettled = pair_count;
    while (unsettled) {
        if (clock_ns() > deadline) fail("%llu of %zu paths were not there after %.0f s", (unsigned long long)unsettled, pair_count, SETTLE);
        if (now_ns >= again && now_ns - last_arrival > 50000000ull) {
            for (size_t i = 0; i < publisher_count; i++) {
                for (uint32_t t = publishers[i].first; t < publishers[i].first + publishers[i].count; t++) {
                    int missing = 0;
                    for (uint32_t k = topics[t].pairs_from; k < topics[t].pairs_to; k++) missing |= !pairs[k].probed;
                    if (missing) publish(&publishers[i], t, PROBE, now_ns);
                }
                flush(publishers[i].client);
            }
            again = after(ASK_AGAIN);
        }
        serve(5);
    }
    Account before = account();
    for (uint64_t least = after(idle), limit = after(idle + REST); now_ns < limit;) {
        for (uint64_t quiet = after(0.5); now_ns < quiet || now_ns - last_arrival < 100000000ull;) serve(5);
        Account now = account();
        double used = now.user + now.system - before.user - before.system;
        if (now_ns >= least && used < RESTING * (now.at - before.at)) break;
        before = now;
    }
    settled = 1;
}

static uint64_t due_at, due_step;

static void send_due(void) {
    while (due_at <= now_ns) {
        static uint32_t turn;
        Publisher *publisher = &publishers[turn % publisher_count];
        if (!may_send(publisher)) {
            flush(publisher->client);
            return; /* later; its latency counts from when it was due */
        }
        publish(publisher, next_topic(publisher), publisher->next++, due_at);
        if (publisher_count > 1) flush(publisher->client);
        turn++;
        due_at += due_step;
    }
    if (publisher_count == 1) flush(publishers[0].client);
}

static void connect_due(void) {
    while (due_at <= now_ns && client_count < client_space) {
        Client *client = new_client(connect_version);
        open_socket(client, connect_port, 0);
        client->asked = due_at;
        write_connect(client, 0, "c");
        watch(client, 1);
        published++;
        due_at += due_step;
    }
}

static void work_until(uint64_t end) {
    uint64_t look = after(0.5);
    if (rate) {
        if (!due_at) due_step = (uint64_t)(1e9 / rate), due_at = now_ns;
        while (clock_ns() < end) {
            connect_port ? connect_due() : send_due();
            uint64_t rest = due_at > now_ns ? due_at - now_ns : 0;
            serve(rest > 2000000 ? 1 : 0);
            if (now_ns > look) give_up_old(), look = after(0.5);
        }
        return;
    }
    while (now_ns < end) {
        refill_dirty();
        serve(10);
        if (now_ns > look) give_up_old(), look = after(0.5);
    }
}

/* Deliveries that are still to come. */
static uint64_t missing(void) {
    uint64_t expected = 0;
    if (connect_port) return published - delivered;
    for (size_t t = 0; t < topic_count; t++) expected += (uint64_t)topics[t].sent * topics[t].deliveries;
    return expected - delivered;
}

static uint64_t waiting_acks(void) {
    uint64_t found = 0;
    for (size_t i = 0; qos && i < publisher_count; i++) found += publishers[i].under_way;
    return found;
}

static void drain(void) {
    uint64_t deadline = after(DRAIN);
    last_arrival = now_ns;
    while ((missing() || waiting_acks()) && clock_ns() < deadline && now_ns - last_arrival < (uint64_t)(QUIET * 1e9))
        serve(10);
    for (uint64_t quiet = after(0.05); now_ns < quiet;) serve(5); /* what comes twice may come late */
}

static double percentile(double part) {
    uint64_t wanted = (uint64_t)(part * (double)latency_count), found = 0;
    for (int i = 0; i < BUCKETS; i++) {
        found += latencies[i];
        if (found > wanted) return (double)(1ull << (i / 64)) * (1.0 + (i % 64 + 0.5) / 64.0) * 1e-9;
    }
    return 0.0;
}

static void report(const Account *from, const Account *to) {
    double took = to->at - from->at;
    double own = to->own_user + to->own_system - from->own_user - from->own_system;
    double broker = to->user + to->system - from->user - from->system;
    double foreign = to->machine - from->machine - own - broker;
    printf("{\"seconds\":%.6f,\"messages\":%llu,\"deliveries\":%llu,\"lost\":%llu,\"doubled\":%llu,", took,
           (unsigned long long)(to->published - from->published), (unsigned long long)(to->delivered - from->delivered),
           (unsigned long long)missing(), (unsigned long long)doubled);
    printf("\"disordered\":%llu,\"wrong\":%llu,\"refused\":%llu,\"unacknowledged\":%llu,", (unsigned long long)disordered,
           (unsigned long long)wrong, (unsigned long long)refused, (unsigned long long)waiting_acks());
    printf("\"given_up\":%llu,\"user\":%.4f,\"system\":%.4f,\"generator_user\":%.4f,\"generator_system\":%.4f,",
           (unsigned long long)given_up, to->user - from->user, to->system - from->system,
           to->own_user - from->own_user, to->own_system - from->own_system);
    printf("\"foreign\":%.4f,\"p50\":%.7f,\"p99\":%.7f,\"p999\":%.7f}\n", foreign > 0 ? foreign : 0.0, percentile(0.5),
           percentile(0.99), percentile(0.999));
}

static void take_order(char *line) {
    char word[32], rest[600] = "";
    int a, b, c, d;
    line[strcspn(line, "\n")] = 0;
    if (!*line) return;
    if (sscanf(line, "%31s %599[^\n]", word, rest) < 1) die("the plan has an empty order");
    if (!strcmp(word, "warm")) warm = atof(rest);
    else if (!strcmp(word, "idle")) idle = atof(rest);
    else if (!strcmp(word, "seconds")) seconds = atof(rest);
    else if (!strcmp(word, "qos")) qos = atoi(rest);
    else if (!strcmp(word, "login")) login = atoi(rest);
    else if (!strcmp(word, "window")) window = atoi(rest);
    else if (!strcmp(word, "bulk")) bulk = atoi(rest);
    else if (!strcmp(word, "rate")) rate = atof(rest);
    else if (!strcmp(word, "seed")) state ^= (uint64_t)atoll(rest) * 2654435761ull;
    else if (!strcmp(word, "payload") && sscanf(rest, "%d %d", &least, &most) == 2) {
        if (least < (int)sizeof(Stamp) + 8 || most < least || most > 65000) die("payloads have 48 to 65,000 bytes");
    } else if (!strcmp(word, "properties")) properties = atoi(rest);
    else if (!strcmp(word, "pid") && pid_count < 1024) pids[pid_count++] = atoi(rest);
    else if (!strcmp(word, "clients")) {
        client_space = (size_t)atoll(rest);
        clients = room(client_space * sizeof *clients);
        publishers = room(client_space * sizeof *publishers);
        dirty = room(client_space * sizeof *dirty);
    } else if (!strcmp(word, "topic")) {
        if (topic_count % 1024 == 0) topics = realloc(topics, (topic_count + 1024) * sizeof *topics);
        if (!topics) die("out of memory");
        Topic *topic = &topics[topic_count++];
        memset(topic, 0, sizeof *topic);
        topic->name = strdup(rest);
        topic->head_size = strlen(rest) + 2;
        topic->head = room(topic->head_size);
        memcpy(put16(topic->head, (int)topic->head_size - 2), rest, topic->head_size - 2);
    } else if (!strcmp(word, "subscriber") && sscanf(rest, "%d %d %d", &a, &b, &c) == 3)
        add_subscriber(a, b, c, strrchr(rest, ' ') + 1);
    else if (!strcmp(word, "publisher") && sscanf(rest, "%d %d %d %d", &a, &b, &c, &d) == 4)
        add_publisher(a, b, (uint32_t)c, (uint32_t)d);
    else if (!strcmp(word, "connect") && sscanf(rest, "%d %d", &a, &b) == 2) connect_port = a, connect_version = b;
    else fail("the plan has an order that is unknown: %s", line);
}

static void write_properties(void) {
    static const char content[] = "application/json", *users[][2] = {{"unit", "ug/m3"}, {"station", "ward-7"}};
    uint8_t *at = property_block + 1;
    if (properties) {
        *at++ = 0x03;
        at = put16(at, sizeof content - 1);
        memcpy(at, content, sizeof content - 1);
        at += sizeof content - 1;
        for (int i = 0; i < 2; i++) {
            *at++ = 0x26;
            for (int k = 0; k < 2; k++) {
                size_t size = strlen(users[i][k]);
                at = put16(at, (int)size);
                memcpy(at, users[i][k], size);
                at += size;
            }
        }
    }
    property_size = (size_t)(at - property_block);
    property_block[0] = (uint8_t)(property_size - 1);
}

int main(void) {
    char line[800];
    epoll_fd = epoll_create1(0);
    for (size_t i = 0; i < sizeof pool; i++) pool[i] = (uint8_t)any(256);
    while (fgets(line, sizeof line, stdin)) take_order(line);
    if (!clients || (!publisher_count && !connect_port)) die("the plan has no clients");
    if (connect_port && !rate) die("connections need a rate");
    write_properties();
    match_all();
    give_slots();
    if (!connect_port) settle();
    for (size_t i = 0; i < publisher_count && !rate; i++) touch(&publishers[i]);
    work_until(after(warm));
    measuring = 1;
    Account from = account();
    work_until(after(seconds));
    Account to = account();
    measuring = 0;
    drain();
    report(&from, &to);
    return 0;
}
