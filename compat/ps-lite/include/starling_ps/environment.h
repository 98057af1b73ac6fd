/* Variables of a program: those that it gives itself count before those of the process. */
#ifndef STARLING_PS_ENVIRONMENT_H
#define STARLING_PS_ENVIRONMENT_H

#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>

#include "logging.h"

namespace ps
{

class Environment
{
  public:
    static Environment *Get() { return _GetSharedRef().get(); }
    static std::shared_ptr<Environment> _GetSharedRef()
    {
        static std::shared_ptr<Environment> environment(new Environment);
        return environment;
    }
    /* Replaces the variables that an earlier call set. Call it before the start: not synchronized.
     */
    static Environment *Init(const std::unordered_map<std::string, std::string> &variables)
    {
        Get()->variables_ = variables;
        return Get();
    }
    /* nullptr: neither set by Init nor in the process. The text lives until the next Init. */
    const char *find(const char *name)
    {
        const auto it = variables_.find(name);
        return it == variables_.end() ? std::getenv(name) : it->second.c_str();
    }
    const std::unordered_map<std::string, std::string> &variables() const { return variables_; }

  private:
    Environment() = default;
    std::unordered_map<std::string, std::string> variables_;
};

template <typename V> inline V GetEnv(const char *name, V preset)
{
    const char *text = Environment::Get()->find(name);
    return text == nullptr ? preset : V(text);
}

inline int GetEnv(const char *name, int preset)
{
    const char *text = Environment::Get()->find(name);
    return text == nullptr ? preset : std::atoi(text);
}

} // namespace ps
#endif
