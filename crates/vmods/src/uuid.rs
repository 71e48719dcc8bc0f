//! Module uuid: universally unique identifiers (RFC 9562) of versions 1, 3, 4 and 5.

use std::cell::Cell;

use lacquer_shm::Tag;
use lacquer_sources::{clock, random};
use lacquer_vcl_runtime::{Args, Ctx, ModuleError, Value};
use md5::Md5;
use sha1::Sha1;
use sha2::Digest;

use crate::blob::encode_hex;
use crate::support::{CallResult, Table, log, shown, text};

pub(crate) static MODULE: Table = Table {
    name: "uuid",
    functions: &[
        ("uuid", uuid_v1),
        ("uuid_v1", uuid_v1),
        ("uuid_v3", uuid_v3),
        ("uuid_v4", uuid_v4),
        ("uuid_v5", uuid_v5),
    ],
    objects: &[],
    suspends: &[],
};

type Uuid = [u8; 16];

/// The beginning of the Gregorian calendar, in units of 100 ns before 1970.
const GREGORIAN: u64 = 0x01b2_1dd2_1381_4000;

/// The node and clock sequence of a thread, and the last time that it used.
#[derive(Clone, Copy)]
struct Node {
    id: [u8; 8],
    last: u64,
}

thread_local! {
    static NODE: Cell<Option<Node>> = const { Cell::new(None) };
}

fn no_numbers(error: &std::io::Error) -> ModuleError {
    format!("vmod uuid: no random numbers: {error}").into()
}

/// Writes version and variant.
fn marked(mut uuid: Uuid, version: u8) -> Uuid {
    uuid[6] = uuid[6] & 0x0f | version << 4;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn formatted(uuid: &Uuid) -> String {
    let digits = encode_hex(uuid);
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| String::from_utf8_lossy(&digits[group]));
    groups.join("-")
}

fn parsed(text: &[u8]) -> Option<Uuid> {
    let dashes = [8, 13, 18, 23];
    if text.len() != 36 || dashes.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut digits = text.iter().enumerate().filter(|(i, _)| !dashes.contains(i));
    let mut digit = || char::from(*digits.next()?.1).to_digit(16);
    let mut uuid = Uuid::default();
    for byte in &mut uuid {
        *byte = (digit()? << 4 | digit()?) as u8;
    }
    Some(uuid)
}

fn namespace(text: &[u8]) -> Option<Uuid> {
    let known = |first: u8| {
        let mut uuid =
            [0x6b, 0xa7, 0xb8, 0, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0, 0xc0, 0x4f, 0xd4, 0x30, 0xc8];
        uuid[3] = first;
        Some(uuid)
    };
    match text {
        b"nil" => Some(Uuid::default()),
        b"ns:DNS" => known(0x10),
        b"ns:URL" => known(0x11),
        b"ns:OID" => known(0x12),
        b"ns:X500" => known(0x14),
        text => parsed(text),
    }
}

/// Returns the UUID of a time in seconds. Times of one thread are made different.
fn timed(now: f64) -> std::io::Result<Uuid> {
    let mut node = match NODE.get() {
        Some(node) => node,
        None => {
            let mut id = [0; 8];
            random::secret(&mut id)?;
            // This bit tells a random node from the address of a network card.
            id[2] |= 1;
            Node { id, last: 0 }
        }
    };
    let ticks = ((now * 1e7) as u64).wrapping_add(GREGORIAN);
    node.last = ticks.max(node.last.wrapping_add(1));
    NODE.set(Some(node));
    let time = node.last.to_be_bytes();
    let mut uuid = Uuid::default();
    uuid[..4].copy_from_slice(&time[4..]);
    uuid[4..6].copy_from_slice(&time[2..4]);
    uuid[6..8].copy_from_slice(&time[..2]);
    uuid[8..].copy_from_slice(&node.id);
    Ok(marked(uuid, 1))
}

/// Returns a UUID of version 4.
fn random_uuid() -> Result<Uuid, ModuleError> {
    let mut uuid = Uuid::default();
    random::secret(&mut uuid).map_err(|error| no_numbers(&error))?;
    Ok(marked(uuid, 4))
}

fn hashed<D: Digest>(namespace: &Uuid, name: &[u8], version: u8) -> Uuid {
    let digest = D::new().chain_update(namespace).chain_update(name).finalize();
    let mut uuid = Uuid::default();
    uuid.copy_from_slice(&digest[..16]);
    marked(uuid, version)
}

fn named<'a>(
    ctx: &mut Ctx<'a>,
    args: &Args<'a>,
    make: fn(&Uuid, &[u8]) -> Uuid,
    version: u8,
) -> CallResult<'a> {
    let (Some(space), Some(name)) = (args.str(0), args.str(1)) else {
        log(ctx, Tag::VCL_Error, format!("vmod uuid: uuid_v{version}: namespace or name is undefined"));
        return Ok(Value::Str(None));
    };
    match namespace(space) {
        Some(space) => text(ctx, formatted(&make(&space, name)).as_bytes()),
        None => {
            let space = shown(Some(space));
            log(ctx, Tag::VCL_Error, format!("vmod uuid: uuid_v{version}: invalid namespace \"{space}\""));
            Ok(Value::Str(None))
        }
    }
}

fn uuid_v1<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let uuid = timed(clock::real()).map_err(|error| no_numbers(&error))?;
    text(ctx, formatted(&uuid).as_bytes())
}

fn uuid_v3<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    named(ctx, args, |space, name| hashed::<Md5>(space, name, 3), 3)
}

fn uuid_v4<'a>(ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    let uuid = random_uuid()?;
    text(ctx, formatted(&uuid).as_bytes())
}

fn uuid_v5<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    named(ctx, args, |space, name| hashed::<Sha1>(space, name, 5), 5)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_have_the_uuids_of_the_standard() {
        let dns = namespace(b"ns:DNS").expect("known");
        assert_eq!(formatted(&dns), "6ba7b810-9dad-11d1-80b4-00c04fd430c8");
        let name = b"www.example.com";
        assert_eq!(formatted(&hashed::<Md5>(&dns, name, 3)), "5df41881-3aed-3515-88a7-2f4a814cf09e");
        assert_eq!(formatted(&hashed::<Sha1>(&dns, name, 5)), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
        assert_eq!(namespace(b"6BA7B810-9dad-11d1-80b4-00c04fd430c8"), Some(dns));
        for invalid in [&b""[..], b"ns:", b"6ba7b810-9dad-11d1-80b4-00c04fd430c", &[b'-'; 36], &[0xff; 36]] {
            assert_eq!(namespace(invalid), None);
        }
    }

    #[test]
    fn times_and_random_numbers_are_never_equal() {
        let timed: HashSet<Uuid> = (0..1000).map(|_| timed(1e9).expect("numbers")).collect();
        assert_eq!(timed.len(), 1000);
        assert!(timed.iter().all(|uuid| uuid[6] >> 4 == 1 && uuid[8] >> 6 == 2 && uuid[10] & 1 == 1));
        let random: HashSet<Uuid> = (0..1000).map(|_| random_uuid().expect("numbers")).collect();
        assert_eq!(random.len(), 1000);
        assert!(random.iter().all(|uuid| uuid[6] >> 4 == 4 && uuid[8] >> 6 == 2));
    }
}
