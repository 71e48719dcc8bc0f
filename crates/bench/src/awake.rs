//! A busy loop that keeps a core from sleeping. It runs with the lowest priority beside a server. The host may need
//! milliseconds to wake a virtual core, which must not count against the server whose request waits for it.

pub fn run() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
