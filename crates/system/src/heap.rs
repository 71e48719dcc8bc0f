//! The C library's heap: its setup, and the return of free memory to the system.

/// The size from which on blocks are mapped by themselves and unmapped when freed. It is fixed, because the default
/// threshold grows with freed blocks and so keeps more memory after each peak.
#[cfg(target_env = "gnu")]
const MAPPED_FROM: libc::c_int = 512 * 1024;
/// The amount that may stay free at the end of each thread's heap. Without it a busy server would take memory and give
/// it back all the time.
#[cfg(target_env = "gnu")]
const KEPT_AT_END: libc::c_int = 4 << 20;

/// Sets up the heap. Called once, before there are other threads.
pub fn prepare_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the options only change when memory is taken from the system and given back.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_AT_END);
    }
}

/// Limits how many heaps the C library makes for threads. It may make fewer than it was allowed, never more.
pub fn limit_heaps(most: u32) {
    #[cfg(target_env = "gnu")]
    {
        let most = libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX);
        // SAFETY: it takes two integers, and changes how memory is found, not memory.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = most;
}

/// Returns the number of free bytes of the heap, whether or not their pages were given back already.
pub fn free_heap() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the call takes the heap's own locks.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    return 0;
}

/// Gives the whole pages of the heap's free blocks back to the system.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; what is in use is not touched.
    unsafe {
        libc::malloc_trim(0);
    }
}
