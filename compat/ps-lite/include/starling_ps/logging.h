/* The check and log macros that programs of ps-lite and of dmlc-core use. A failed check and
 * LOG(FATAL) throw dmlc::Error, or abort if the program defines DMLC_LOG_FATAL_THROW as 0. A line
 * goes to stderr in one write. Any thread.
 *
 * The guard is that of dmlc-core's header of the same name: a program that includes both gets the
 * first one. */
#ifndef DMLC_LOGGING_H_
#define DMLC_LOGGING_H_

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <sstream>
#include <stdexcept>
#include <string>

#ifndef DMLC_LOG_FATAL_THROW
#define DMLC_LOG_FATAL_THROW 1
#endif

namespace dmlc
{

struct Error : public std::runtime_error {
    explicit Error(const std::string &text) : std::runtime_error(text) {}
};

inline void InitLogging(const char *) {}

/* One line, written when the object is destroyed. */
class LogMessage
{
  public:
    LogMessage(const char *file, int line)
    {
        const std::time_t now = std::time(nullptr);
        struct tm local;
        char text[sizeof "[hh:mm:ss] "] = "";
        localtime_r(&now, &local);
        std::strftime(text, sizeof text, "[%H:%M:%S] ", &local);
        stream_ << text << file << ':' << line << ": ";
    }
    LogMessage(const LogMessage &) = delete;
    void operator=(const LogMessage &) = delete;
    ~LogMessage() { Write(); }
    std::ostream &stream() { return stream_; }

  protected:
    void Write()
    {
        const std::string line = stream_.str() + '\n';
        std::fwrite(line.data(), 1, line.size(), stderr);
    }
    std::ostringstream stream_;
};

class LogMessageFatal : public LogMessage
{
  public:
    using LogMessage::LogMessage;
#if DMLC_LOG_FATAL_THROW
    ~LogMessageFatal() noexcept(false)
    {
        /* The base class writes the line while this exception leaves. */
        throw Error(stream_.str());
    }
#else
    [[noreturn]] ~LogMessageFatal()
    {
        Write();
        std::abort();
    }
#endif
};

/* Makes both sides of a condition void. */
struct LogMessageVoidify {
    void operator&(std::ostream &) {}
};

template <typename T> inline T CheckNotNull(const char *file, int line, const char *text, T pointer)
{
    if (pointer == nullptr) {
        LogMessageFatal(file, line).stream() << "Check failed: " << text << " is null";
    }
    return pointer;
}

} // namespace dmlc

#define LOG_INFO    ::dmlc::LogMessage(__FILE__, __LINE__)
#define LOG_WARNING LOG_INFO
#define LOG_ERROR   LOG_INFO
#define LOG_FATAL   ::dmlc::LogMessageFatal(__FILE__, __LINE__)
#define LOG_QFATAL  LOG_FATAL
#ifdef NDEBUG
#define LOG_DFATAL       LOG_ERROR
#define DMLC_DEBUG_CHECK false
#else
#define LOG_DFATAL       LOG_FATAL
#define DMLC_DEBUG_CHECK true
#endif

#define LOG(severity) LOG_##severity.stream()
#define LG            LOG_INFO.stream()
#define LL            LOG(ERROR)
#define VLOG(level)   LOG_INFO.stream()
#define LOG_IF(severity, condition)                                                                \
    !(condition) ? (void)0 : ::dmlc::LogMessageVoidify() & LOG(severity)
#define DLOG_IF(severity, condition) LOG_IF(severity, DMLC_DEBUG_CHECK && (condition))
#define DLOG(severity)               LOG_IF(severity, DMLC_DEBUG_CHECK)
#define LOG_EVERY_N(severity, n)     LOG(severity)

#define CHECK(x)                                                                                   \
    (x) ? (void)0 : ::dmlc::LogMessageVoidify() & LOG(FATAL) << "Check failed: " #x << ' '
#define CHECK_LT(x, y)   CHECK((x) < (y))
#define CHECK_GT(x, y)   CHECK((x) > (y))
#define CHECK_LE(x, y)   CHECK((x) <= (y))
#define CHECK_GE(x, y)   CHECK((x) >= (y))
#define CHECK_EQ(x, y)   CHECK((x) == (y))
#define CHECK_NE(x, y)   CHECK((x) != (y))
#define CHECK_NOTNULL(x) ::dmlc::CheckNotNull(__FILE__, __LINE__, #x, (x))
#define DCHECK(x)        CHECK(!DMLC_DEBUG_CHECK || (x))
#define DCHECK_LT(x, y)  DCHECK((x) < (y))
#define DCHECK_GT(x, y)  DCHECK((x) > (y))
#define DCHECK_LE(x, y)  DCHECK((x) <= (y))
#define DCHECK_GE(x, y)  DCHECK((x) >= (y))
#define DCHECK_EQ(x, y)  DCHECK((x) == (y))
#define DCHECK_NE(x, y)  DCHECK((x) != (y))

#endif
