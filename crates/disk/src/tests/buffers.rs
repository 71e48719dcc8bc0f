//! The memory of reads.

use std::sync::Arc;

use super::device::SimulatedDevice;
use crate::blocks::{Aligned, BLOCK, Blocks};
use crate::buffers::Buffers;

#[test]
fn memory_is_used_again_without_the_bytes_of_earlier_reads() {
    let device = SimulatedDevice::new(1 << 20, 1);
    let text = Aligned::copy_of(&vec![7; 40_000]);
    device.write(BLOCK, text.bytes()).expect("the device works");
    let buffers = Arc::<Buffers>::default();
    let read = |at, len| buffers.read(&device, at, len).expect("the device works");
    let (long, from) = read(BLOCK + 5, 39_000);
    assert_eq!((long.bytes().len(), from), (40_960, 5));
    assert!(long.bytes()[from..][..39_000].iter().all(|&byte| byte == 7));
    let place = long.bytes().as_ptr();
    drop(long);
    let (short, from) = read(100 * BLOCK - 3, 6);
    assert_eq!((short.bytes().as_ptr(), short.bytes().len(), from), (place, 8192, 4093));
    assert!(short.bytes().iter().all(|&byte| byte == 0), "the device has zeros there");
    let (other, _) = read(BLOCK, 10);
    assert_ne!(other.bytes().as_ptr(), place, "the memory is in use");
}

#[test]
fn reads_of_all_lengths_get_memory_and_those_beyond_the_end_fail() {
    let device = SimulatedDevice::new(1 << 20, 1);
    let buffers = Arc::<Buffers>::default();
    for len in [1, BLOCK, 276 << 10, (276 << 10) + 1, 1 << 20] {
        let (buffer, _) = buffers.read(&device, 0, len).expect("the device is long enough");
        assert_eq!(buffer.bytes().len() as u64, len.next_multiple_of(BLOCK));
    }
    let error = buffers.read(&device, (1 << 20) - 1, 2).expect_err("it is beyond the end");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    device.fail_reads(1000);
    buffers.read(&device, 0, 1).expect_err("the device fails");
}
