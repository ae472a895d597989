// What gputrace sees of PyTorch's autograd engine, under the same symbols: passes (`GraphTask`) that a thread
// of the engine's works for, node by node in turn, and the operators around what the nodes launch.
//
// Compiled twice, as PyTorch is: libtorch_cpu, and with -DPYTHON libtorch_python, which calls the first by its
// symbols and is called by programs. -DINTRUSIVE has nodes count their references themselves, as versions after
// 2.11 do; -DODD has a callback's description and a node in another order than any version, and keeps a pass's number where nobody
// looks for it; -DNAMELESS gives the engine's threads no names, as versions before 2.6 do.
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

extern "C" int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                              void **, void **);
extern "C" int cuCtxSetCurrent(void *);
extern "C" int cuDevicePrimaryCtxRetain(void **, int);

namespace at {

enum class RecordScope : uint8_t { FUNCTION = 0, BACKWARD_FUNCTION = 1, USER_SCOPE = 7, NUM_SCOPES = 10 };
struct RecordFunction;
struct ObserverContext {
    virtual ~ObserverContext() = default;
};
using Start = std::unique_ptr<ObserverContext> (*)(const RecordFunction &);
using End = void (*)(const RecordFunction &, ObserverContext *);

class RecordFunctionCallback {
  public:
#ifdef ODD
    std::array<bool, 10> scopes;
    Start start;
    End end;
    double sampling;
#else
    Start start;
    End end;
    double sampling;
    std::array<bool, 10> scopes;
#endif
    bool needs_inputs, needs_outputs, needs_ids;
};

struct StepCallbacks {
    // As c10::SmallVector: where the elements are, how many, how many there is room for, the room.
    void *begin;
    uint32_t size, capacity;
    std::array<std::pair<Start, End>, 4> room;
    uint64_t thread;
    RecordScope scope;
    ~StepCallbacks() {}
};

uint64_t addGlobalCallback(RecordFunctionCallback);
void removeCallback(unsigned long);
std::optional<StepCallbacks> getStepCallbacksUnlessEmpty(RecordScope);

struct RecordFunction {
    static uint64_t currentThreadId();
    RecordFunction(const char *name, RecordScope);
    virtual ~RecordFunction();
    const char *name() const;
    std::string text;
    std::vector<End> ends;
};

namespace sequence_number {
uint64_t peek();
uint64_t get_and_increment();
} // namespace sequence_number

} // namespace at

namespace c10 {
namespace detail {
template <class T> struct intrusive_target_default_null_type final {};
} // namespace detail
template <class T, class N = detail::intrusive_target_default_null_type<T>> class intrusive_ptr final {
  public:
    T *held = nullptr;
    intrusive_ptr() = default;
    explicit intrusive_ptr(T *target) : held(target) { retain(); }
    intrusive_ptr(const intrusive_ptr &other) : held(other.held) { retain(); }
    intrusive_ptr &operator=(const intrusive_ptr &other) {
        intrusive_ptr copy(other);
        std::swap(held, copy.held);
        return *this;
    }
    ~intrusive_ptr() {
        if (held && (uint32_t)held->references.fetch_sub(1) == 1)
            delete held;
    }
    T *get() const { return held; }

  private:
    void retain() {
        if (held)
            held->references.fetch_add(1);
    }
};
} // namespace c10

namespace torch {
namespace autograd {

#ifdef INTRUSIVE
struct Counted {
    virtual ~Counted() = default;
    /// The upper half counts weak references.
    std::atomic<uint64_t> references{uint64_t(1) << 32};
};
#else
struct Counted : std::enable_shared_from_this<Counted> {
    virtual ~Counted() = default;
};
#endif

struct Node : Counted {
#ifdef ODD
    void *odd = nullptr;
#endif
    uint64_t sequence_nr = at::sequence_number::get_and_increment();
    uint64_t topological_nr = 7;
    bool has_parent = true;
    uint64_t thread_id = at::RecordFunction::currentThreadId();
    void *function = nullptr;
    bool on_caller = false;
    virtual void run();
};
#ifdef INTRUSIVE
using NodePointer = c10::intrusive_ptr<Node>;
#else
using NodePointer = std::shared_ptr<Node>;
#endif

struct InputBuffer {
    std::deque<NodePointer> nodes;
};

struct GraphTask : std::enable_shared_from_this<GraphTask> {
    std::mutex mutex;
    std::condition_variable done;
    std::deque<NodePointer> nodes;
    std::exception_ptr failure;
    bool is_done = false;
    char more[64];
    std::unordered_map<Node *, int> exec_info;
    char rest[400];
    uint64_t id;
};

using Future = std::shared_ptr<int>;

struct Engine {
    virtual ~Engine() = default;
    virtual Future execute_with_graph_task(const std::shared_ptr<GraphTask> &, NodePointer, InputBuffer &&);
    static Engine &get();
};

int get_current_graph_task_id();
const std::unordered_map<Node *, int> *get_current_graph_task_exec_info();
NodePointer get_current_node();
uint64_t next_id();
void put_after(void *function);
void put_made(NodePointer);
NodePointer take_made();

#ifndef PYTHON

static thread_local std::shared_ptr<GraphTask> current_task;
static thread_local NodePointer current_node;
static thread_local bool is_worker = false;

#ifdef ODD
static __attribute__((noinline)) int id_of(const GraphTask &task) { return (int)*(volatile const uint64_t *)&task.id; }
int get_current_graph_task_id() { return current_task ? id_of(*current_task) : -1; }
#else
int get_current_graph_task_id() { return current_task ? (int)current_task->id : -1; }
#endif
const std::unordered_map<Node *, int> *get_current_graph_task_exec_info() {
    return current_task ? &current_task->exec_info : nullptr;
}
NodePointer get_current_node() { return current_node; }
uint64_t next_id() {
    static std::atomic<uint64_t> next{0};
    return next++;
}

static std::mutex of_made;
static std::deque<NodePointer> made;

void put_made(NodePointer node) {
    std::lock_guard<std::mutex> lock(of_made);
    made.push_back(node);
}

NodePointer take_made() {
    std::lock_guard<std::mutex> lock(of_made);
    auto node = made.front();
    made.pop_front();
    return node;
}

static void launch(void *function) {
    at::RecordFunction outer("aten::linear", at::RecordScope::FUNCTION);
    at::RecordFunction inner("aten::mm", at::RecordScope::FUNCTION);
    at::RecordFunction again("aten::mm", at::RecordScope::FUNCTION);
    if (cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr))
        _exit(9);
}

void Node::run() { launch(function); }

static void evaluate(std::shared_ptr<GraphTask> task, NodePointer node) {
    auto outer_task = current_task;
    auto outer_node = current_node;
    current_task = task;
    current_node = node;
    try {
        at::RecordFunction engine("autograd::engine::evaluate_function: MmBackward0", at::RecordScope::FUNCTION);
        at::RecordFunction itself("MmBackward0", at::RecordScope::BACKWARD_FUNCTION);
        node.get()->run();
    } catch (...) {
        task->failure = std::current_exception();
    }
    current_task = outer_task;
    current_node = outer_node;
}

namespace {
struct Queue {
    std::mutex mutex;
    std::condition_variable more;
    std::deque<std::shared_ptr<GraphTask>> tasks;
    std::deque<void *> after;

    void work() {
#ifndef NAMELESS
        pthread_setname_np(pthread_self(), "pt_autograd_0");
#endif
        is_worker = true;
        void *context;
        if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
            _exit(8);
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            more.wait(lock, [&] { return !tasks.empty() || !after.empty(); });
            if (!after.empty()) {
                void *function = after.front();
                after.pop_front();
                launch(function);
                continue;
            }
            auto task = tasks.front();
            tasks.pop_front();
            lock.unlock();
            std::unique_lock<std::mutex> of_task(task->mutex);
            if (!task->nodes.empty() && !task->failure) {
                auto node = task->nodes.front();
                task->nodes.pop_front();
                of_task.unlock();
                evaluate(task, node);
                of_task.lock();
            }
            // Passes take turns, a node each.
            bool is_done = task->nodes.empty() || task->failure;
            task->is_done = is_done;
            if (is_done)
                task->done.notify_all();
            of_task.unlock();
            lock.lock();
            if (!is_done)
                tasks.push_back(task);
        }
    }
};
} // namespace

static Queue &queue() {
    static Queue *queue = [] {
        auto *made = new Queue;
        std::thread([made] { made->work(); }).detach();
        return made;
    }();
    return *queue;
}

void put_after(void *function) {
    auto &its = queue();
    std::lock_guard<std::mutex> lock(its.mutex);
    its.after.push_back(function);
    its.more.notify_all();
}

static Future run_pass(const std::shared_ptr<GraphTask> &task, InputBuffer &&inputs) {
    std::deque<NodePointer> own;
    for (auto &node : inputs.nodes)
        (node.get()->on_caller || is_worker ? own : task->nodes).push_back(node);
    if (!task->nodes.empty()) {
        auto &its = queue();
        {
            std::lock_guard<std::mutex> lock(its.mutex);
            its.tasks.push_back(task);
            its.more.notify_all();
        }
        std::unique_lock<std::mutex> lock(task->mutex);
        task->done.wait(lock, [&] { return task->is_done; });
    }
    for (auto &node : own)
        if (!task->failure)
            evaluate(task, node);
    if (task->failure)
        std::rethrow_exception(task->failure);
    return std::make_shared<int>(1);
}

Future Engine::execute_with_graph_task(const std::shared_ptr<GraphTask> &task, NodePointer root, InputBuffer &&inputs) {
    if (!root.get())
        throw std::logic_error("the arguments did not arrive");
    return run_pass(task, std::move(inputs));
}

Engine &Engine::get() {
    static Engine engine;
    return engine;
}

extern "C" __attribute__((visibility("default"))) void unnoticed(const std::shared_ptr<GraphTask> *task,
                                                                 InputBuffer *inputs) {
    run_pass(*task, std::move(*inputs));
}
#else
extern "C" void unnoticed(const std::shared_ptr<GraphTask> *task, InputBuffer *inputs);
#endif

} // namespace autograd
} // namespace torch

#ifndef PYTHON
namespace at {

namespace sequence_number {
static thread_local uint64_t next = 0;
uint64_t peek() { return next; }
uint64_t get_and_increment() { return next++; }
} // namespace sequence_number

uint64_t RecordFunction::currentThreadId() {
    static std::atomic<uint64_t> last{0};
    static thread_local uint64_t own = 0;
    return own ? own : own = ++last;
}

static std::mutex mutex;
static std::vector<RecordFunctionCallback> callbacks;
static std::vector<bool> removed;

uint64_t addGlobalCallback(RecordFunctionCallback callback) {
    std::lock_guard<std::mutex> lock(mutex);
    callbacks.push_back(callback);
    removed.push_back(false);
    return callbacks.size() - 1;
}

void removeCallback(unsigned long handle) {
    std::lock_guard<std::mutex> lock(mutex);
    removed[handle] = true;
}

std::optional<StepCallbacks> getStepCallbacksUnlessEmpty(RecordScope scope) {
    std::lock_guard<std::mutex> lock(mutex);
    StepCallbacks called{};
    for (size_t each = 0; each < callbacks.size(); each++)
        if (!removed[each] && callbacks[each].scopes[(size_t)scope])
            called.room[called.size++] = {callbacks[each].start, callbacks[each].end};
    if (!called.size)
        return std::nullopt;
    return called;
}

/// How many observers are in.
extern "C" __attribute__((visibility("default"))) int observers() {
    std::lock_guard<std::mutex> lock(mutex);
    return (int)std::count(removed.begin(), removed.end(), false);
}

RecordFunction::RecordFunction(const char *name, RecordScope scope) : text(name) {
    if (auto called = getStepCallbacksUnlessEmpty(scope))
        for (uint32_t each = 0; each < called->size; each++) {
            called->room[each].first(*this);
            ends.push_back(called->room[each].second);
        }
}

RecordFunction::~RecordFunction() {
    for (auto end : ends)
        end(*this, nullptr);
    text.assign(text.size(), '?');
}

const char *RecordFunction::name() const { return text.c_str(); }

} // namespace at
#else

using namespace torch::autograd;

namespace torch {
namespace autograd {
namespace generated {
struct MmBackward0 : Node {};
} // namespace generated
struct AccumulateGrad : Node {};
struct PyNode : Node {
    void (*callback)(void);
    void run() override { callback(); }
};
struct Error : Node {
    void run() override { throw std::runtime_error("a node failed"); }
};

/// As PyTorch's own: one that goes on to the base class by its symbol.
struct PythonEngine : Engine {
    Future execute_with_graph_task(const std::shared_ptr<GraphTask> &task, NodePointer root,
                                   InputBuffer &&inputs) override {
        return Engine::execute_with_graph_task(task, root, std::move(inputs));
    }
};
} // namespace autograd
} // namespace torch

namespace {
struct Hidden : Node {};
} // namespace

/// Where passes are that shall be where another one was.
static struct {
    std::aligned_storage<sizeof(GraphTask) + 64, 16>::type room;
    bool is_taken;
    std::mutex mutex;
    std::condition_variable left;
} place;

/// An operator: a node is made, and after it the function is launched, if there is one.
extern "C" __attribute__((visibility("default"))) void forward(void *function) {
    put_made(NodePointer(new generated::MmBackward0));
    if (function && cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr))
        _exit(9);
}

/// A backward pass of so many nodes, one a letter: m, a and h launch the next of `functions`, M on the calling thread
/// itself, and f too, which is the next of the nodes that operators made; p calls back; t throws. `how`: s has the pass where the last such one was, u too, and is past the symbol. 1 where a
/// node threw.
extern "C" __attribute__((visibility("default"))) int backward(const char *nodes, void **functions,
                                                               void (*callback)(void), char how) {
    static PythonEngine engine;
    std::shared_ptr<GraphTask> task;
    if (how == 's' || how == 'u') {
        std::unique_lock<std::mutex> lock(place.mutex);
        // The engine's thread may hold the last one a little longer.
        place.left.wait(lock, [] { return !place.is_taken; });
        place.is_taken = true;
        task = std::shared_ptr<GraphTask>(new (&place.room) GraphTask, [](GraphTask *task) {
            task->~GraphTask();
            std::lock_guard<std::mutex> lock(place.mutex);
            place.is_taken = false;
            place.left.notify_all();
        });
    } else {
        task = std::make_shared<GraphTask>();
    }
    task->id = next_id();
    InputBuffer inputs;
    for (const char *each = nodes; *each; each++) {
        if (*each == 'f') {
            auto operators = take_made();
            operators.get()->function = *functions++;
            inputs.nodes.push_back(operators);
            continue;
        }
        Node *node;
        switch (*each) {
        case 'a':
            node = new AccumulateGrad;
            break;
        case 'h':
            node = new Hidden;
            break;
        case 'p': {
            auto *python = new PyNode;
            python->callback = callback;
            node = python;
            break;
        }
        case 't':
            node = new torch::autograd::Error;
            break;
        default:
            node = new generated::MmBackward0;
            node->on_caller = *each == 'M';
        }
        if (strchr("mahM", *each))
            node->function = *functions++;
        inputs.nodes.push_back(NodePointer(node));
    }
    NodePointer root(new generated::MmBackward0);
    try {
        if (how == 'u') {
            unnoticed(&task, &inputs);
            return 0;
        }
        return *engine.execute_with_graph_task(task, root, std::move(inputs)) - 1;
    } catch (const std::runtime_error &error) {
        return strcmp(error.what(), "a node failed") ? 2 : 1;
    }
}

/// The engine's thread launches it, for no pass.
extern "C" __attribute__((visibility("default"))) void afterwards(void *function) { put_after(function); }

extern "C" __attribute__((visibility("default"))) void *range_begin(const char *name) {
    return new at::RecordFunction(name, at::RecordScope::USER_SCOPE);
}

extern "C" __attribute__((visibility("default"))) void range_end(void *range) {
    delete static_cast<at::RecordFunction *>(range);
}
#endif
