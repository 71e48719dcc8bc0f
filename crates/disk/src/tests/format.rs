//! The format: layouts, refusals and damage.

use std::io;

use super::device::SimulatedDevice;
use crate::blocks::{Aligned, BLOCK, Blocks};
use crate::journal::Mark;
use crate::layout::{LEAST_SIZE, Layout, OpenError};
use crate::membership::Membership;

#[test]
fn layouts_fit_devices_of_all_sizes() {
    for size in [LEAST_SIZE, 100 << 20, 1 << 30, 620 << 30, 16 << 40, 64 << 40] {
        let layout = Layout::plan(size, 1, 0.0).expect("the size is accepted");
        assert!(layout.size() <= size && layout.size() + layout.segment > size, "{layout:?}");
        assert!(layout.segments >= 30, "{layout:?}");
    }
    assert!(matches!(Layout::plan(LEAST_SIZE - 1, 1, 0.0), Err(OpenError::TooSmall(_))));
    let most = Layout::plan(u64::MAX, 1, 0.0).expect("a part of the device is used");
    assert!(most.size() <= 64 << 40, "the index has no places beyond: {most:?}");
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

#[test]
fn impossible_superblocks_with_correct_checksums_are_damaged() {
    let layout = Layout::plan(LEAST_SIZE, 99, 5.0).expect("the size is accepted");
    let forged = [
        Layout { segments: 0, ..layout },
        Layout { segments: u64::MAX, ..layout },
        // Its size does not fit into 64 bits.
        Layout { segments: (1 << 40) - 1, segment: 32 << 20, ..layout },
        Layout { segments: 1 << 28, segment: 32 << 20, ..layout },
        Layout { segment: 0, ..layout },
        Layout { segment: u64::MAX, ..layout },
        Layout { segment: 300_000, ..layout },
        Layout { journal: 0, ..layout },
        Layout { journal: u64::MAX / 2, ..layout },
        Layout { created: f64::NAN, ..layout },
    ];
    for forged in forged {
        let device = SimulatedDevice::new(LEAST_SIZE, 1);
        device.write(0, forged.superblock().bytes()).expect("the device works");
        device.write(BLOCK, forged.superblock().bytes()).expect("the device works");
        assert!(matches!(Layout::open(&device), Err(OpenError::Damaged)), "{forged:?}");
    }
}

/// A device that cannot read the block at a position.
struct Unreadable(SimulatedDevice, u64);

impl Blocks for Unreadable {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        if (at..at + buffer.len() as u64).contains(&self.1) {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.0.read(at, buffer)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

#[test]
fn one_superblock_that_cannot_be_read_is_replaced_by_the_other() {
    for at in [0, BLOCK] {
        let device = SimulatedDevice::new(LEAST_SIZE, 1);
        let layout = Layout::plan(LEAST_SIZE, 99, 5.0).expect("the size is accepted");
        layout.create(&device).expect("the device works");
        let membership = Membership { changes: 3, id: 8, disks: 2 };
        membership.write(&layout, &device).expect("the device works");
        let unreadable = Unreadable(device.clone(), at);
        assert_eq!(Layout::open(&unreadable).expect("the other one is sound"), layout);
        assert_eq!(Membership::read(&layout, &unreadable).expect("it is readable"), Some(membership));
        let mark = Mark { generation: 1, number: 5 };
        mark.write(&layout, &unreadable).expect("it is written");
        assert_eq!(Mark::read(&layout, &unreadable).expect("it is readable"), mark);
        for device in [Unreadable(device.clone(), 0), Unreadable(device, BLOCK)] {
            assert_eq!(Mark::read(&layout, &device).expect("both were written"), mark);
            assert_eq!(Membership::read(&layout, &device).expect("both were written"), Some(membership));
        }
    }
}

#[test]
fn a_device_that_others_use_is_refused_although_the_copy_is_sound() {
    let device = SimulatedDevice::new(LEAST_SIZE, 1);
    let layout = Layout::plan(LEAST_SIZE, 99, 5.0).expect("the size is accepted");
    layout.create(&device).expect("the device works");
    // One bit of its beginning.
    device.flip(3, 1);
    assert_eq!(Layout::open(&device).expect("the copy is sound"), layout);
    let mut swap = Aligned::new(BLOCK as usize);
    swap.bytes_mut()[4086..].copy_from_slice(b"SWAPSPACE2");
    device.write(0, swap.bytes()).expect("the device works");
    assert!(matches!(Layout::open(&device), Err(OpenError::Foreign)));
}

#[test]
fn a_store_that_is_emptied_keeps_its_membership() {
    let device = SimulatedDevice::new(LEAST_SIZE, 1);
    let layout = Layout::plan(LEAST_SIZE, 99, 5.0).expect("the size is accepted");
    layout.create(&device).expect("the device works");
    layout.renew(&device, 6.0).expect("the device works");
    let layout = Layout::open(&device).expect("there is a store");
    assert_eq!(Membership::read(&layout, &device).expect("the device works"), None);
    let membership = Membership { changes: 3, id: 8, disks: 2 };
    membership.write(&layout, &device).expect("the device works");
    layout.renew(&device, 7.0).expect("the device works");
    let next = Layout::open(&device).expect("there is a store");
    assert_ne!(next.id, layout.id);
    for at in [0, BLOCK] {
        let found = Membership::read(&next, &Unreadable(device.clone(), at));
        assert_eq!(found.expect("the device works"), Some(membership));
    }
}
