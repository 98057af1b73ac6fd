/* Arrays by key, how their values travel, and how a program's slicer may divide them. */
#ifndef STARLING_PS_KV_PAIRS_H
#define STARLING_PS_KV_PAIRS_H

#include <type_traits>
#include <utility>

#include "postoffice.h"

namespace ps
{

/* lens[i] values of keys[i]; without lens the same number of values of each key. */
template <typename Val> struct KVPairs {
    SArray<Key> keys;
    SArray<Val> vals;
    SArray<int> lens;
    int priority = 0;
};

/* The properties of a request, for its handler. */
struct KVMeta {
    int cmd;
    bool push, pull;
    int sender;    /* id of the worker's node */
    int timestamp; /* names the request among all that this process has received */
    int customer_id;
    /* Of BytePS's fork */
    Key key;       /* the first one */
    uint64_t addr; /* 0: memory of the sender is never shown */
    int val_len;   /* values that are pushed or asked for; 0: the sender asks for all that there are
                    */
    int option;
};

namespace starling
{

/* Values that servers can add up travel as such, all others as bytes. */
template <typename Val> struct Values {
    static const uint32_t kBytes = std::is_same<Val, float>::value ? sizeof(float) : 1;
    static const uint32_t kScale = sizeof(Val) / kBytes; /* values of the table in one of ours */
};

inline std::string TableName(int app_id, int customer_id, int instance)
{
    return "ps." + std::to_string(app_id) + '.' + std::to_string(customer_id) + '.' +
           std::to_string(instance);
}

/* For each server: whether it gets a request, and which. */
template <typename Val> using SlicedKVs = std::vector<std::pair<bool, KVPairs<Val>>>;

/* Fails unless the slices are the keys and values of `all`, in their order, each in its range. */
template <typename Val>
void CheckSlices(const KVPairs<Val> &all, const std::vector<Range> &ranges,
                 const SlicedKVs<Val> &sliced)
{
    CHECK_EQ(sliced.size(), ranges.size()) << ": the slicer makes one slice for each server";
    size_t at = 0, values = 0;
    for (size_t i = 0; i < sliced.size(); i++) {
        const KVPairs<Val> &slice = sliced[i].second;
        for (size_t k = 0; sliced[i].first && k < slice.keys.size(); k++, at++) {
            const Key key = slice.keys[k];
            CHECK(at < all.keys.size() && key == all.keys[at])
                << ": the slicer adds, drops, renames or reorders keys, as " << key;
            CHECK(key >= ranges[i].begin() && (key < ranges[i].end() || ranges[i].end() == kMaxKey))
                << ": the slicer moves key " << key << " out of its range, to server " << i;
        }
        if (sliced[i].first && !slice.vals.empty()) {
            CHECK(values + slice.vals.size() <= all.vals.size() &&
                  std::equal(slice.vals.begin(), slice.vals.end(), all.vals.begin() + values))
                << ": the slicer changes values of server " << i;
            values += slice.vals.size();
        }
    }
    CHECK(at == all.keys.size() && values == all.vals.size())
        << ": the slicer drops keys or values";
}

} // namespace starling
} // namespace ps
#endif
