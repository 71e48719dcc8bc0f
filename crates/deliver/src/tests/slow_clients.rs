//! Clients that read nothing, behind filters and includes: they hold no part of a body that is read from a device.

use std::task::{Context, Waker};

use super::slow_store::{GOOD, SlowWorld, beside, send_range};
use super::*;

const MANY: usize = 40;

/// Returns the pipelines between a stored body and the client in which the bytes are changed.
fn converting(kind: &str) -> BodyPipeline<Recorder> {
    let full = Recorder { is_full: true, ..recorder(u64::MAX >> 1) };
    match kind {
        "filter" => pipeline(vec![Box::new(Gzip::new(1))], full),
        "include" => {
            let page = pipeline(Vec::new(), full);
            let mut include = Box::new(EsiInclude::new(page, true, Checksum::default(), true));
            assert!(run(include.prepare(None, false, false)));
            BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include))
        }
        _ => {
            let page = pipeline(vec![Box::new(Gzip::new(1))], full);
            let include = Box::new(EsiInclude::new(page, false, Checksum::default(), true));
            BodyPipeline::new(Vec::new(), 1 << 15, BodySink::Include(include))
        }
    }
}

#[test]
fn clients_behind_filters_and_includes_hold_no_part() {
    for kind in ["filter", "include", "filter of the including page"] {
        let slow = SlowWorld::new(4 << 20, 1, GOOD);
        let bodies: Vec<Vec<u8>> = (0..=MANY as u64).map(|seed| Random(200 + seed).bytes(400_000)).collect();
        let objects: Vec<_> = (1..).zip(&bodies).map(|(key, body)| slow.settled(key, body)).collect();
        let mut waiting: Vec<_> = objects[..MANY]
            .iter()
            .map(|object| {
                let object = object.clone();
                Box::pin(async move {
                    let mut through = converting(kind);
                    let _ = send_stored(&mut through, &object, 0, u64::MAX, Behind::More).await;
                })
            })
            .collect();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..100 {
            for client in &mut waiting {
                assert!(client.as_mut().poll(&mut cx).is_pending());
            }
            slow.store.run();
        }
        let (sent, got) = run(beside(&slow.store, send_range(objects[MANY].clone(), 0, u64::MAX, 30_000)));
        sent.expect("nothing fails");
        assert!(got.ended && got.bytes == bodies[MANY], "{kind}");
    }
}
