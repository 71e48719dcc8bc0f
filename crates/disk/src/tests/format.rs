//! The format: layouts, refusals and damage.

use super::device::SimulatedDevice;
use crate::blocks::{Aligned, BLOCK, Blocks};
use crate::layout::{LEAST_SIZE, Layout, OpenError};

#[test]
fn layouts_fit_devices_of_all_sizes() {
    for size in [LEAST_SIZE, 100 << 20, 1 << 30, 620 << 30, 16 << 40] {
        let layout = Layout::plan(size, 1, 0.0).expect("the size is accepted");
        assert!(layout.size() <= size && layout.size() + layout.segment > size, "{layout:?}");
        assert!(layout.segments >= 30, "{layout:?}");
    }
    assert!(matches!(Layout::plan(LEAST_SIZE - 1, 1, 0.0), Err(OpenError::TooSmall(_))));
}

#[test]
fn devices_that_are_no_stores_are_refused_with_the_reason() {
    let device = SimulatedDevice::new(LEAST_SIZE, 1);
    assert!(matches!(Layout::open(&device), Err(OpenError::Empty)));
    let layout = Layout::plan(LEAST_SIZE, 99, 5.0).expect("the size is accepted");
    layout.create(&device).expect("the device works");
    assert_eq!(Layout::open(&device).expect("it is a store"), layout);
    // The copy helps.
    device.flip(40, 3);
    assert_eq!(Layout::open(&device).expect("the copy is sound"), layout);
    device.flip(BLOCK + 40, 3);
    assert!(matches!(Layout::open(&device), Err(OpenError::Damaged)));
    layout.create(&device).expect("the device works");
    device.flip(8, 1);
    device.flip(BLOCK + 8, 1);
    assert!(matches!(Layout::open(&device), Err(OpenError::UnknownVersion(3))));
    let text = Aligned::copy_of(b"a file system");
    device.write(0, text.bytes()).expect("the device works");
    device.write(BLOCK, text.bytes()).expect("the device works");
    assert!(matches!(Layout::open(&device), Err(OpenError::Foreign)));
    let small = SimulatedDevice::new(1 << 20, 1);
    let mut buffer = Aligned::new(2 * BLOCK as usize);
    layout.create(&device).expect("the device works");
    device.read(0, buffer.bytes_mut()).expect("the device works");
    small.write(0, buffer.bytes()).expect("the device works");
    assert!(matches!(Layout::open(&small), Err(OpenError::Shrunk { .. })));
}
