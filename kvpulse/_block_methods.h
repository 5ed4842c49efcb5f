/* What the pool states, see kvpulse/block_events.py. */
#ifndef KVPULSE_BLOCK_METHODS_H
#define KVPULSE_BLOCK_METHODS_H

#include "_method_call.h"

WRITES(allocate)
{
    int host;
    if (!read_u32(given[0], &record->owner) || !read_tenant(given[2], record)
        || !read_flag(given[3], &host)) {
        return 0;
    }
    record->flags = host ? HOST_TIER : 0;
    record->aux = 1;
    return write_ids(self, record, given[1], result);
}
DECLARE(allocate, ALLOCATE, 2, "allocate", "owner", "ids", "tenant", "host")

WRITES(share)
{
    int host;
    if (!read_u32(given[0], &record->owner) || !read_u32(given[2], &record->aux)
        || !read_tenant(given[3], record) || !read_flag(given[4], &host)) {
        return 0;
    }
    record->flags = host ? HOST_TIER : 0;
    return write_ids(self, record, given[1], result);
}
DECLARE(share, SHARE, 3, "share", "owner", "ids", "count", "tenant", "host")

WRITES(free_ids)
{
    int host;
    uint32_t outcome;
    if (!read_u32(given[0], &record->owner) || !read_u32(given[2], &record->aux)
        || !read_u8(given[3], &outcome) || !read_tenant(given[4], record)
        || !read_flag(given[5], &host)) {
        return 0;
    }
    /* What `|` makes of a subclass of int is Python's to say. */
    if (host && !PyLong_CheckExact(given[3])) {
        return 0;
    }
    record->flags = (uint8_t)(host ? outcome | HOST_TIER : outcome);
    return write_ids(self, record, given[1], result);
}
DECLARE(free_ids, FREE, 4, "free", "owner", "ids", "count", "outcome", "tenant", "host")

WRITES(evict)
{
    return read_u32_or(given[1], 1, &record->aux) && read_u32_or(given[2], 0, &record->owner)
           && read_tenant(given[3], record) && write_ids(self, record, given[0], result);
}
DECLARE(evict, EVICT, 1, "evict", "ids", "reason", "owner", "tenant")

WRITES(hold)
{
    uint32_t reason;
    if (!read_u32(given[0], &record->owner) || !read_u8(given[2], &reason)
        || !read_u32(given[3], &record->aux) || !read_tenant(given[4], record)) {
        return 0;
    }
    record->flags = (uint8_t)reason;
    return write_ids(self, record, given[1], result);
}
DECLARE(hold, HOLD, 4, "hold", "owner", "ids", "reason", "lease_ms", "tenant")

WRITES(cache)
{
    Items ids, hashes;
    uint32_t words[MOST_WORDS];
    if (!read_u32(given[0], &record->owner) || !read_items(given[1], &ids)
        || !read_items(given[2], &hashes) || !read_tenant(given[3], record)) {
        return 0;
    }
    uint64_t n = ids.length;
    if (n == 0 || hashes.length != n || n > self->piece / 3 || 3 * n > MOST_WORDS
        || !has_room(self, 3 * n) || !read_words(ids, words)) {
        return 0;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t content;
        /* Python takes a single hash apart with `&` and `>>`: a subclass of int may differ. */
        if (!PyLong_CheckExact(hashes.items[i])
            || !read_u64(hashes.items[i], UINT64_MAX, &content)) {
            return 0;
        }
        put_u64(words + n + 2 * i, content);
    }
    record->n = (uint32_t)n;
    *result = emit(self, record, words, 3 * n, n);
    return 1;
}
DECLARE(cache, CACHE, 3, "cache", "owner", "ids", "hashes", "tenant")

#define copy_on_write_written write_pairs
DECLARE(copy_on_write, COPY_ON_WRITE, 2, "copy_on_write", "owner", "pairs", "tenant")
#define swap_out_written write_pairs
DECLARE(swap_out, SWAP_OUT, 2, "swap_out", "owner", "pairs", "tenant")
#define swap_in_written write_pairs
DECLARE(swap_in, SWAP_IN, 2, "swap_in", "owner", "pairs", "tenant")

WRITES(allocate_failed)
{
    uint32_t words[3];
    return read_u32(given[0], &record->owner) && read_u32(given[1], &words[0])
           && read_u32(given[2], &words[1]) && read_u32(given[3], &words[2])
           && read_u32(given[4], &record->aux) && read_tenant(given[5], record)
           && write_words(self, record, words, 3, result);
}
DECLARE(allocate_failed, ALLOCATE_FAILED, 5, "allocate_failed", "owner", "needed", "free", "cached",
        "cause", "tenant")

#endif
