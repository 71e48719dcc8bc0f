//! Collects panics of the engine, which its tasks would hide.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static FOUND: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Collects the panics of all threads instead of printing them.
pub fn collect() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|info| FOUND.with_borrow_mut(|found| found.push(info.to_string()))));
    });
}

/// Returns the panics of this thread since the last call.
pub fn take() -> Vec<String> {
    FOUND.take()
}
