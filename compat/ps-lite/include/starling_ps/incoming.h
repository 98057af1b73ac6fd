/* Requests on their way from the reactor of a server to the customer of their app. */
#ifndef STARLING_PS_INCOMING_H
#define STARLING_PS_INCOMING_H

#include "kv_pairs.h"

namespace ps
{
namespace starling
{

/* A request as received, with memory of its own. */
struct Incoming {
    sl_kv_request request; /* its pointers refer to `block` */
    std::shared_ptr<char> block;
    int customer_id;
    bool has_push, has_pull;
};

/* A push gets lens, also where they are equal and do not travel; a pull has none, as in ps-lite. */
inline std::shared_ptr<Incoming> CopyOf(const sl_kv_request &request)
{
    auto incoming = std::make_shared<Incoming>();
    const bool has_push = request.push != nullptr;
    const size_t keys_bytes = request.key_count * sizeof *request.keys;
    const size_t lens_bytes = has_push ? (request.key_count * sizeof *request.lens + 7) / 8 * 8 : 0;
    const size_t push_bytes = has_push ? request.value_count * request.value_bytes : 0;
    char *block = new char[keys_bytes + lens_bytes + push_bytes + 1];
    incoming->block.reset(block, std::default_delete<char[]>());
    incoming->request = request;
    incoming->has_push = has_push;
    incoming->has_pull = request.pull != nullptr || request.lens_wanted;
    std::memcpy(block, request.keys, keys_bytes);
    incoming->request.keys = reinterpret_cast<const uint64_t *>(block);
    incoming->request.lens = nullptr;
    if (has_push) {
        uint32_t *lens = reinterpret_cast<uint32_t *>(block + keys_bytes);
        const uint32_t each = static_cast<uint32_t>(request.value_count / request.key_count);
        for (uint32_t i = 0; i < request.key_count; i++) {
            lens[i] = request.lens == nullptr ? each : request.lens[i];
        }
        incoming->request.lens = lens;
        std::memcpy(block + keys_bytes + lens_bytes, request.push, push_bytes);
    }
    incoming->request.push = block + keys_bytes + lens_bytes;
    return incoming;
}

/* Reads a number and what follows it, '.' or the end. False: there is none. */
inline bool ReadNumber(const char **at, char end, int *out)
{
    char *after;
    const long value = std::strtol(*at, &after, 10);
    if (after == *at || *after != end || value < INT32_MIN || value > INT32_MAX) {
        return false;
    }
    *out = static_cast<int>(value);
    *at = after + 1;
    return true;
}

/* On the reactor: passes a request to the customer of its app. */
inline int HandleRequest(void *, const sl_kv_request *request)
{
    int app_id, customer_id, instance;
    const char *at = request->table + 3;
    if (std::strncmp(request->table, "ps.", 3) != 0 || !ReadNumber(&at, '.', &app_id) ||
        !ReadNumber(&at, '.', &customer_id) || !ReadNumber(&at, '\0', &instance) || instance < 0 ||
        instance >= Postoffice::Get()->group_size() || request->array_length != 0 ||
        request->key_count == 0) {
        return SL_ERR_INVALID;
    }
    if (request->token == nullptr) {
        return SL_ERR_NO_MEMORY;
    }
    const std::shared_ptr<Incoming> incoming = CopyOf(*request);
    incoming->customer_id = customer_id;
    const bool taken = Postoffice::GetServer(instance)->Deliver(
        app_id, app_id, [incoming](Customer *customer) { customer->TakeRequest(incoming); });
    return taken ? SL_KV_LATER : SL_ERR_NO_MEMORY;
}

} // namespace starling
} // namespace ps
#endif
