// Objects of one size from a per-thread free list, so that making a tensor takes nanoseconds. A
// list is a plain pointer and a count, so that reaching it costs one thread-local load; its
// clean-up at thread exit is registered on the slow path, when the list was empty.
#pragma once

#include <new>

#include <brrr/tensor/sanitizers.h>

namespace brrr {

inline constexpr bool kPooling = !BRRR_ASAN;  // the address sanitizer is to see every object

template <class T>
class Pool {
 public:
  static void* take() {
    List& list = list_;
    if (list.head) [[likely]] {
      Link* link = list.head;
      list.head = link->next;
      --list.count;
      return link;
    }
    return take_slow();
  }

  static void give(void* memory) {
    List& list = list_;
    if (!kPooling || list.count >= kMost || !list.open) [[unlikely]] {
      ::operator delete (memory, std::align_val_t{64});
      return;
    }
    Link* link = static_cast<Link*>(memory);
    link->next = list.head;
    list.head = link;
    ++list.count;
  }

 private:
  struct Link {
    Link* next;
  };
  struct List {
    Link* head;
    int count;
    bool open;  // false before the first take and after the thread's clean-up
  };
  static constexpr int kMost = 4096;

  [[gnu::noinline]] static void* take_slow() {
    struct Cleanup {
      ~Cleanup() {
        list_.open = false;
        while (Link* link = list_.head) {
          list_.head = link->next;
          ::operator delete (link, std::align_val_t{64});
        }
        list_.count = 0;
      }
    };
    static thread_local bool once = [] {
      static thread_local Cleanup cleanup;
      (void)cleanup;
      list_.open = true;
      return true;
    }();
    (void)once;
    return ::operator new (sizeof(T), std::align_val_t{64});
  }

  static thread_local constinit List list_;
};

template <class T>
thread_local constinit typename Pool<T>::List Pool<T>::list_{};

}  // namespace brrr
