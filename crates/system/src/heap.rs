//! The C library's heap: its configuration, and the return of free memory to the system.

/// Size in bytes from which on blocks are mapped individually and unmapped when freed. It is fixed, because the default
/// threshold grows with freed blocks and thus keeps more memory after each peak.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: libc::c_int = 512 * 1024;
/// Free bytes that may remain at the end of each thread's heap. Without them, a busy server would continually allocate
/// memory from the system and return it.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD: libc::c_int = 4 << 20;

/// Configures the heap. Must be called once, before there are other threads.
pub fn prepare_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the options only change when memory is allocated from the system and returned.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    }
}

/// Limits the number of heaps for threads. The C library may create fewer, never more.
pub fn limit_heaps(most: u32) {
    #[cfg(target_env = "gnu")]
    {
        let most = libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX);
        // SAFETY: it takes two integers, and changes the allocation strategy, not memory.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = most;
}

/// Returns the number of free bytes of the heap, even if their pages were already returned to the system.
pub fn free_heap() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; the call takes the heap's own locks.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(target_env = "gnu"))]
    return 0;
}

/// Returns the whole pages of the heap's free blocks to the system.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no pointers; memory in use is not touched.
    unsafe {
        libc::malloc_trim(0);
    }
}
