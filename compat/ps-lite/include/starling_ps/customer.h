/* A customer: one application's end in this process. It has a thread, which runs callbacks and
 * handlers one after the other, and the timestamps of its requests, which ascend from 0.
 *
 * Any thread, unless a function says otherwise. */
#ifndef STARLING_PS_CUSTOMER_H
#define STARLING_PS_CUSTOMER_H

#include <starling_kv.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "logging.h"

namespace ps
{

class Postoffice;

namespace starling
{
struct Mail;
struct Incoming;
} // namespace starling

class Customer
{
  public:
    using Task = std::function<void()>;
    using MailFn = std::function<void(const starling::Mail &)>;
    using RequestFn = std::function<void(const starling::Incoming &)>;

    /* The functions run on the customer's thread. */
    Customer(int app_id, int customer_id, MailFn on_mail, RequestFn on_request = nullptr)
        : app_id_(app_id), customer_id_(customer_id), on_mail_(std::move(on_mail)),
          on_request_(std::move(on_request))
    {
        thread_ = std::thread(&Customer::Run, this);
    }
    Customer(const Customer &) = delete;
    void operator=(const Customer &) = delete;
    ~Customer()
    {
        Quiesce();
        thread_.join();
    }

    int app_id() const { return app_id_; }
    int customer_id() const { return customer_id_; }

    /* Runs the task on the customer's thread, after those posted before; not after Quiesce. */
    void Post(Task task)
    {
        std::lock_guard<std::mutex> lock(tasks_mutex_);
        if (stopping_) {
            return;
        }
        const bool was_empty = tasks_.empty();
        tasks_.push_back(std::move(task));
        posted_++;
        if (was_empty) {
            tasks_cond_.notify_all();
        }
    }
    void TakeMail(std::shared_ptr<starling::Mail> mail)
    {
        Post([this, mail] { on_mail_(*mail); });
    }
    /* False: this customer is no server. */
    bool TakeRequest(std::shared_ptr<starling::Incoming> incoming)
    {
        if (on_request_) {
            Post([this, incoming] { on_request_(*incoming); });
        }
        return static_cast<bool>(on_request_);
    }
    /* Waits until the tasks that were posted have run. */
    void Flush()
    {
        std::unique_lock<std::mutex> lock(tasks_mutex_);
        const uint64_t posted = posted_;
        CHECK(std::this_thread::get_id() != thread_.get_id()) << ": in a callback or handler";
        tasks_cond_.wait(lock, [=] { return ended_ || run_ >= posted; });
    }
    /* Runs the tasks that were posted, then no others. Called by a task: returns at once. */
    void Quiesce()
    {
        std::unique_lock<std::mutex> lock(tasks_mutex_);
        stopping_ = true;
        tasks_cond_.notify_all();
        if (std::this_thread::get_id() != thread_.get_id()) {
            tasks_cond_.wait(lock, [this] { return ended_; });
        }
    }

    /* Returns the timestamp of a request that is complete after `responses` calls of AddResponse.
     */
    int NewRequest(int responses)
    {
        std::lock_guard<std::mutex> lock(requests_mutex_);
        requests_.push_back(Pending{responses, false});
        return first_ + static_cast<int>(requests_.size()) - 1;
    }
    void AddResponse(int timestamp, int count = 1)
    {
        std::lock_guard<std::mutex> lock(requests_mutex_);
        Arrived(timestamp, count);
    }
    /* One response, which failed. The last SL_KV_RESULTS failures are kept; older ones count as
     * success. */
    void AddFailure(int timestamp, std::string reason)
    {
        std::lock_guard<std::mutex> lock(requests_mutex_);
        failures_[timestamp] = std::move(reason);
        if (failures_.size() > SL_KV_RESULTS) {
            failures_.erase(failures_.begin());
        }
        Arrived(timestamp, 1);
    }
    /* Waits until the request and its callback are complete. Throws dmlc::Error with the reason of
     * a failure, each time that it is called. The deadline is that of the request. */
    void WaitRequest(int timestamp)
    {
        std::string reason;
        {
            std::unique_lock<std::mutex> lock(requests_mutex_);
            CHECK(timestamp >= 0 && timestamp < first_ + static_cast<int>(requests_.size()))
                << ": timestamp " << timestamp << " was never returned by customer " << customer_id_
                << " of app " << app_id_;
            Pending *pending;
            while ((pending = Find(timestamp)) != nullptr && pending->left > 0) {
                CHECK(std::this_thread::get_id() != thread_.get_id())
                    << ": a callback or handler waits for timestamp " << timestamp
                    << " of its own customer, which would never end";
                pending->waited = true;
                requests_cond_.wait(lock);
            }
            const auto failure = failures_.find(timestamp);
            if (failure == failures_.end()) {
                return;
            }
            reason = failure->second;
        }
        LOG(FATAL) << "app " << app_id_ << ", timestamp " << timestamp << ": " << reason;
    }

  private:
    struct Pending {
        int left;
        bool waited;
    };

    void Run()
    {
        std::unique_lock<std::mutex> lock(tasks_mutex_);
        std::deque<Task> taken;
        for (;;) {
            tasks_cond_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
            if (tasks_.empty()) {
                break;
            }
            taken.swap(tasks_);
            lock.unlock();
            const size_t count = taken.size();
            for (; !taken.empty(); taken.pop_front()) {
                taken.front()();
            }
            lock.lock();
            run_ += count;
            tasks_cond_.notify_all();
        }
        ended_ = true;
        tasks_cond_.notify_all();
    }
    /* Both under the lock. */
    Pending *Find(int timestamp)
    {
        return timestamp < first_ ? nullptr : &requests_[static_cast<size_t>(timestamp - first_)];
    }
    void Arrived(int timestamp, int count)
    {
        Pending *pending = Find(timestamp);
        if (pending == nullptr) {
            return;
        }
        pending->left -= count;
        if (pending->left <= 0 && pending->waited) {
            requests_cond_.notify_all();
        }
        while (!requests_.empty() && requests_.front().left <= 0) {
            requests_.pop_front();
            first_++;
        }
    }

    const int app_id_, customer_id_;
    const MailFn on_mail_;
    const RequestFn on_request_;

    std::mutex tasks_mutex_;
    std::condition_variable tasks_cond_;
    std::deque<Task> tasks_;
    uint64_t posted_ = 0, run_ = 0;
    bool stopping_ = false, ended_ = false;

    std::mutex requests_mutex_;
    std::condition_variable requests_cond_;
    std::deque<Pending> requests_; /* from timestamp first_ on; the first is not complete */
    int first_ = 0;
    std::map<int, std::string> failures_;

    std::thread thread_; /* last: it uses the others */
};

} // namespace ps
#endif
