/* The interface of dmlc's ps-lite for programs that are compiled unmodified, over starling_kv.h:
 *
 *   g++ program.cc $(pkg-config --cflags --libs starling-ps-lite)
 *
 * docs/ps-lite.md names what is supported and what differs. C++14, header only. All functions
 * throw dmlc::Error with a sentence when they fail. */
#ifndef STARLING_PS_LITE_PS_H
#define STARLING_PS_LITE_PS_H

#include "../starling_ps/kv_server.h"
#include "../starling_ps/kv_worker.h"

namespace ps
{

namespace starling
{

inline Node::Role RoleOfEnvironment()
{
    const std::string role = CHECK_NOTNULL(Environment::Get()->find("DMLC_ROLE"));
    CHECK(role == "scheduler" || role == "server" || role == "worker")
        << ": DMLC_ROLE=" << role << ": accepts scheduler, server, worker";
    return role == "scheduler" ? Node::SCHEDULER : role == "server" ? Node::SERVER : Node::WORKER;
}

inline void StartRole(int customer_id, const char *program, bool barrier)
{
    dmlc::InitLogging(program == nullptr ? "ps-lite" : program);
    const Node::Role role = RoleOfEnvironment();
    Postoffice::Init(role);
    Postoffice::Get()->StartMember(customer_id, role, -1, barrier);
}

} // namespace starling

/* Joins the job as DMLC_ROLE says, and waits until all processes have. A worker may start once for
 * each of several customers: each counts as one of DMLC_NUM_WORKER. */
inline void Start(int customer_id, const char *program = nullptr)
{
    starling::StartRole(customer_id, program, true);
}
/* Does not wait for the processes that have registered but not called it yet. */
inline void StartAsync(int customer_id, const char *program = nullptr)
{
    starling::StartRole(customer_id, program, false);
}
/* Waits for all processes, unless `barrier` is false, and leaves the job. */
inline void Finalize(int customer_id, bool barrier = true)
{
    Postoffice::Get()->Finalize(customer_id, barrier);
}
/* Runs after Finalize of customer 0. */
inline void RegisterExitCallback(const std::function<void()> &callback)
{
    Postoffice::Get()->RegisterExitCallback(callback);
}
inline bool IsWorker()
{
    return Postoffice::Get()->is_worker();
}
inline bool IsServer()
{
    return Postoffice::Get()->is_server();
}
inline int MyRank()
{
    return Postoffice::Get()->my_rank();
}

} // namespace ps
#endif
