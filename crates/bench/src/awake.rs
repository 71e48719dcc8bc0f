//! Does nothing, but never sleeps: beside others, with the least priority, it keeps their core from going
//! to sleep. Waking a virtual machine's core is the host's work and takes it up to milliseconds, which
//! is not the fault of the server whose request waits for that.

pub fn run() -> ! {
    loop {
        std::hint::spin_loop();
    }
}
