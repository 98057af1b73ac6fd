/* A member of the job: one role of this process, with its connections. A worker is an sl_kv; a
 * server or the scheduler is an sl_kv_server with an sl_kv beside it, for barriers and messages. */
#ifndef STARLING_PS_MEMBER_H
#define STARLING_PS_MEMBER_H

#include <starling_kv.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "environment.h"

/* The deadline of a push, a pull or a message, in ms: a handler must have answered by then. */
#ifndef STARLING_PS_TIMEOUT_MS
#define STARLING_PS_TIMEOUT_MS 60000
#endif

namespace ps
{

struct Node {
    enum Role { SERVER, WORKER, SCHEDULER, JOINT };
};

namespace starling
{

/* A barrier may wait for hours while other processes compute: it ends when all have come, or when
 * one of them expires. */
static const uint32_t kBarrierMs = UINT32_MAX;

/* "NAME=VALUE" for the library: the variables of Environment::Init, and those that a member
 * determines itself. */
class Variables
{
  public:
    Variables(Node::Role role, int rank)
    {
        std::unordered_map<std::string, std::string> values = Environment::Get()->variables();
        values["DMLC_ROLE"] = role == Node::WORKER   ? "worker"
                              : role == Node::SERVER ? "server"
                                                     : "scheduler";
        values["DMLC_GROUP_SIZE"] = "1"; /* instances of one process share its connections */
        if (rank >= 0) {
            values["DMLC_RANK"] = std::to_string(rank);
        }
        if (GetEnv("PS_VERBOSE", 0) > 2) {
            values["PS_VERBOSE"] = "2";
        }
        for (const auto &value : values) {
            texts_.push_back(value.first + '=' + value.second);
        }
        for (const std::string &text : texts_) {
            pointers_.push_back(text.c_str());
        }
        pointers_.push_back(nullptr);
    }
    const char *const *get() const { return pointers_.data(); }

  private:
    std::vector<std::string> texts_;
    std::vector<const char *> pointers_;
};

class Member
{
  public:
    /* Joins the job; returns when the library has, at the latest after its start timeout. Throws
     * dmlc::Error. The functions for messages get `ctx`; a server's handler is copied. */
    Member(Node::Role role, int rank, const sl_kv_handler *handler, sl_kv_message_fn *request,
           sl_kv_message_fn *answer, void *ctx)
        : role_(role)
    {
        const Variables variables(role, rank);
        sl_kv_options options = {};
        options.name = "ps";
        options.value_bytes = 1;
        options.variables = variables.get();
        if (role != Node::WORKER) {
            static const char *const flags[] = {"--reactors", "1", nullptr};
            sl_kv_server_options server = {};
            server.variables = variables.get();
            server.flags = role == Node::SERVER ? flags : nullptr;
            server.handler = handler;
            CHECK_EQ(sl_kv_server_start(&server, &server_), 0) << ": " << sl_last_error();
            options.beside = server_;
            options.variables = nullptr;
        }
        CHECK_EQ(sl_kv_create(&options, &kv_), 0) << ": " << sl_last_error();
        rank_ = role == Node::WORKER   ? static_cast<int>(sl_kv_rank(kv_))
                : role == Node::SERVER ? static_cast<int>(sl_kv_server_rank(server_))
                                       : 0;
        sl_kv_messages(kv_, request, answer, ctx);
    }
    Member(const Member &) = delete;
    void operator=(const Member &) = delete;
    /* Leaves the job. */
    ~Member() { Close(false); }

    /* Waits for the operations of all tables. */
    void CloseTables()
    {
        std::lock_guard<std::mutex> lock(tables_mutex_);
        for (sl_kv **table : tables_) {
            sl_kv_destroy(table);
        }
        tables_.clear();
    }
    /* Leaves the job. A server or the scheduler with `to_the_end` first waits until all workers
     * have left. */
    void Close(bool to_the_end)
    {
        CloseTables();
        sl_kv_destroy(&kv_);
        if (server_ == nullptr) {
            return;
        }
        if (to_the_end && sl_kv_server_wait(server_, STARLING_PS_TIMEOUT_MS) != 0) {
            LOG(WARNING) << "the job has not ended: " << sl_last_error();
        }
        const int status = sl_kv_server_stop(&server_);
        if (status != 0) {
            LOG(WARNING) << "the " << (role_ == Node::SERVER ? "server" : "scheduler")
                         << " ended with status " << status;
        }
        server_ = nullptr;
    }

    /* Opens a table into *table, which Close sets to NULL. */
    void OpenTable(const std::string &name, uint32_t value_bytes, sl_kv **table)
    {
        CHECK(kv_ != nullptr) << ": the worker has left the job";
        sl_kv_options options = {};
        options.name = name.c_str();
        options.value_bytes = value_bytes;
        options.timeout_ms = STARLING_PS_TIMEOUT_MS;
        options.zeros = true;
        CHECK_EQ(sl_kv_open(kv_, &options, table), 0) << ": " << sl_last_error();
        std::lock_guard<std::mutex> lock(tables_mutex_);
        tables_.push_back(table);
    }
    void CloseTable(sl_kv **table)
    {
        std::lock_guard<std::mutex> lock(tables_mutex_);
        for (size_t i = 0; i < tables_.size(); i++) {
            if (tables_[i] == table) {
                tables_.erase(tables_.begin() + static_cast<std::ptrdiff_t>(i));
                sl_kv_destroy(table);
                return;
            }
        }
    }

    Node::Role role() const { return role_; }
    int rank() const { return rank_; }
    sl_kv *kv() const { return kv_; }

  private:
    const Node::Role role_;
    int rank_ = 0;
    sl_kv *kv_ = nullptr;
    sl_kv_server *server_ = nullptr;
    std::mutex tables_mutex_;
    std::vector<sl_kv **> tables_;
};

} // namespace starling
} // namespace ps
#endif
