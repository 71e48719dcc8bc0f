//! Records panics of this thread's tasks, which the runtime would hide.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static FOUND: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Starts to collect the panics of this thread, and discards earlier ones.
pub fn forget() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            FOUND.with_borrow_mut(|found| found.push(info.to_string()));
            before(info);
        }));
    });
    FOUND.take();
}

/// Returns the panics since the last call of `forget`.
pub fn found() -> Vec<String> {
    FOUND.take()
}
