//! The memory use of a small object. Run alone: `cargo test --release -p lacquer-cache memory -- --ignored`.

use super::*;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number") * 4096
}

#[test]
#[ignore = "takes a while and measures the whole process"]
fn half_a_million_small_objects_fit_the_memory_budget() {
    const N: u64 = 500_000;
    const HEAD: [u8; 200] = [b'h'; 200];
    let w = World::new(Some(1 << 30));
    let before = resident();
    for key in 0..N {
        let Lookup::Miss { busy, .. } = w.lookup(key) else { unreachable!() };
        busy.publish(&w.object(1000.0, |s| s.head = &HEAD, &[b'b'; 100]));
    }
    let each = (resident() - before) / N;
    let arena = w.cache.stevedores()[0].used_space() / N;
    println!("{each} bytes an object, {arena} of them in the arena");
    assert!(each < 500);
}
