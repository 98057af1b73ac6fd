/* An array with shared ownership of its memory, and ranges of keys. Copies and segments refer to
 * the same memory, which is released with the last of them. Not synchronized: the count of owners
 * is, the elements are not. */
#ifndef STARLING_PS_SARRAY_H
#define STARLING_PS_SARRAY_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "logging.h"

namespace ps
{

/* Keys or positions from `begin` on, before `end`. */
class Range
{
  public:
    Range() : Range(0, 0) {}
    Range(uint64_t begin, uint64_t end) : begin_(begin), end_(end) {}
    uint64_t begin() const { return begin_; }
    uint64_t end() const { return end_; }
    uint64_t size() const { return end_ - begin_; }

  private:
    uint64_t begin_, end_;
};

/* Of BytePS's fork. Memory of devices is not supported: the fields of an array are what the program
 * stores in them, and a server sees CPU 0. */
enum DeviceType { UNK, CPU, GPU };

inline const char *DeviceName(DeviceType type)
{
    return type == CPU ? "CPU" : type == GPU ? "GPU" : "UNK";
}

template <typename V> class SArray
{
  public:
    SArray() = default;
    explicit SArray(size_t size, V value = 0) { resize(size, value); }
    /* The same bytes as elements of another type. Their number must be divisible. */
    template <typename W> explicit SArray(const SArray<W> &other) { *this = other; }
    template <typename W> void operator=(const SArray<W> &other)
    {
        size_ = other.size() * sizeof(W) / sizeof(V);
        CHECK_EQ(size_ * sizeof(V), other.size() * sizeof(W))
            << ": " << other.size() * sizeof(W) << " bytes are not elements of " << sizeof(V);
        capacity_ = other.capacity() * sizeof(W) / sizeof(V);
        ptr_ = std::shared_ptr<V>(other.ptr(), reinterpret_cast<V *>(other.data()));
        src_device_type_ = other.src_device_type_;
        src_device_id_ = other.src_device_id_;
        dst_device_type_ = other.dst_device_type_;
        dst_device_id_ = other.dst_device_id_;
    }
    /* The caller's memory; the last owner deletes it if `deletable`. */
    SArray(V *data, size_t size, bool deletable = false)
        : SArray(data, size, CPU, 0, CPU, 0, deletable)
    {
    }
    SArray(V *data, size_t size, DeviceType src_type, int src_id, DeviceType dst_type, int dst_id,
           bool deletable = false)
    {
        if (deletable) {
            CHECK_EQ(src_type, CPU) << ": only the program can free memory of a device";
            reset(
                data, size, [](V *array) { delete[] array; }, src_type, src_id, dst_type, dst_id);
        } else {
            reset(
                data, size, [](V *) {}, src_type, src_id, dst_type, dst_id);
        }
    }
    /* Copies. */
    explicit SArray(const std::vector<V> &vector) { CopyFrom(vector.data(), vector.size()); }
    /* Owns the vector, whose size must not change. */
    explicit SArray(const std::shared_ptr<std::vector<V>> &vector)
    {
        share(vector, vector->data(), vector->size());
    }
    template <typename W> SArray(const std::initializer_list<W> &list)
    {
        CopyFrom(list.begin(), list.end());
    }
    template <typename W> void operator=(const std::initializer_list<W> &list)
    {
        CopyFrom(list.begin(), list.end());
    }

    void CopyFrom(const V *data, size_t size)
    {
        V *copy = new V[size];
        std::copy(data, data + size, copy);
        own(copy, size, size);
    }
    void CopyFrom(const SArray<V> &other)
    {
        if (this != &other) {
            CopyFrom(other.data(), other.size());
        }
    }
    template <typename Iterator> void CopyFrom(const Iterator &first, const Iterator &last)
    {
        const size_t size = static_cast<size_t>(std::distance(first, last));
        V *copy = new V[size];
        std::copy(first, last, copy);
        own(copy, size, size);
    }

    template <typename Deleter>
    void reset(V *data, size_t size, Deleter deleter, DeviceType src_type = CPU, int src_id = 0,
               DeviceType dst_type = CPU, int dst_id = 0)
    {
        ptr_.reset(data, deleter);
        size_ = capacity_ = size;
        src_device_type_ = src_type;
        src_device_id_ = src_id;
        dst_device_type_ = dst_type;
        dst_device_id_ = dst_id;
    }
    /* Refers to `size` elements in memory that `owner` keeps. */
    template <typename Owner> void share(const std::shared_ptr<Owner> &owner, V *data, size_t size)
    {
        ptr_ = std::shared_ptr<V>(owner, data);
        size_ = capacity_ = size;
    }
    /* New elements get `value`. Beyond the capacity the array moves to memory of its own. */
    void resize(size_t size, V value = 0)
    {
        const size_t old_size = size_;
        reserve(size);
        size_ = size;
        if (size > old_size) {
            std::fill(data() + old_size, data() + size, value);
        }
    }
    void reserve(size_t capacity)
    {
        if (capacity > capacity_) {
            V *grown = new V[capacity];
            std::copy(data(), data() + size_, grown);
            own(grown, size_, capacity);
        }
    }
    void clear()
    {
        ptr_.reset();
        size_ = capacity_ = 0;
    }

    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    V *data() const { return ptr_.get(); }
    V *begin() { return data(); }
    const V *begin() const { return data(); }
    V *end() { return data() + size_; }
    const V *end() const { return data() + size_; }
    std::shared_ptr<V> &ptr() { return ptr_; }
    const std::shared_ptr<V> &ptr() const { return ptr_; }
    V front() const
    {
        CHECK(!empty());
        return data()[0];
    }
    V back() const
    {
        CHECK(!empty());
        return data()[size_ - 1];
    }
    V &operator[](size_t i) { return data()[i]; }
    const V &operator[](size_t i) const { return data()[i]; }

    void push_back(const V &value)
    {
        const V copy = value; /* may be an element of this array */
        if (size_ == capacity_) {
            reserve(size_ * 2 + 4);
        }
        data()[size_++] = copy;
    }
    void pop_back() { size_ -= size_ > 0; }
    void append(const SArray<V> &other)
    {
        const SArray<V> kept = other; /* may be this array */
        const size_t old_size = size_;
        reserve(old_size + kept.size());
        std::copy(kept.begin(), kept.end(), data() + old_size);
        size_ = old_size + kept.size();
    }
    /* Elements from `begin` on, before `end`, in the same memory. */
    SArray<V> segment(size_t begin, size_t end) const
    {
        CHECK_LE(begin, end);
        CHECK_LE(end, size_);
        SArray<V> part(*this);
        part.share(ptr_, data() + begin, end - begin);
        return part;
    }

    std::string DebugString() const
    {
        std::ostringstream text;
        text << size_ << " elements, " << DeviceName(src_device_type_) << ' ' << src_device_id_
             << " to " << DeviceName(dst_device_type_) << ' ' << dst_device_id_;
        return text.str();
    }

  private:
    void own(V *data, size_t size, size_t capacity)
    {
        ptr_.reset(data, [](V *array) { delete[] array; });
        size_ = size;
        capacity_ = capacity;
    }
    size_t size_ = 0, capacity_ = 0;
    std::shared_ptr<V> ptr_;

  public:
    DeviceType src_device_type_ = CPU;
    int src_device_id_ = 0;
    DeviceType dst_device_type_ = CPU;
    int dst_device_id_ = 0;
};

/* The positions of the elements of an ascending array from `lower` on, before `upper`. */
template <typename V> Range FindRange(const SArray<V> &array, V lower, V upper)
{
    if (upper <= lower) {
        return Range(0, 0);
    }
    const V *first = std::lower_bound(array.begin(), array.end(), lower);
    const V *last = std::lower_bound(array.begin(), array.end(), upper);
    return Range(static_cast<uint64_t>(first - array.begin()),
                 static_cast<uint64_t>(last - array.begin()));
}

template <typename V> std::string DebugStr(const V *data, int count, int shown = 5)
{
    std::ostringstream text;
    text << '[' << count << "]:";
    for (int i = 0; i < count; i++) {
        if (count >= 2 * shown && i == shown) {
            text << " ...";
            i = count - shown;
        }
        text << ' ' << data[i];
    }
    return text.str();
}

template <typename V> std::ostream &operator<<(std::ostream &stream, const SArray<V> &array)
{
    return stream << DebugStr(array.data(), static_cast<int>(array.size()));
}

} // namespace ps
#endif
