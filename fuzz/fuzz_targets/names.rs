//! The system's files of names: lines of static names, and the settings of the resolver. Zero bytes separate them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |&b| b == 0);
    let mut next = || parts.next().unwrap_or_default();
    let (hosts, resolv_conf, servers) = (next(), next(), next());
    lacquer_names::fuzz(hosts, resolv_conf, &String::from_utf8_lossy(servers));
});
