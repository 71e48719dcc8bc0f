//! Services: hosts, ports, priorities and weights from SRV records (RFC 2782).

use std::sync::{Arc, PoisonError};

use lacquer_names::{Name, Place};
use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, BackendId, Ctx, Value};

use super::director::{Dynamic, Key, none};
use crate::random::fine_fraction;
use crate::support::{CallResult, log, shown};

/// The maximum number of services of one director.
const MOST_SERVICES: usize = 1000;

impl Dynamic {
    fn service_name(&self, ctx: &Ctx<'_>, service: &str) -> Result<Arc<Name>, String> {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = services.get(service) {
            return Ok(name.clone());
        }
        if !lacquer_vcl::is_host_name(service) {
            return Err("is not the name of a service".to_owned());
        }
        if services.len() >= MOST_SERVICES {
            return Err(format!("is refused: the director has {MOST_SERVICES} services already"));
        }
        let name = ctx.vcl.watch_service(service, self.lookup.refresh)?;
        services.insert(service.to_owned(), name.clone());
        Ok(name)
    }
}

pub(super) fn service<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let dynamic = args.this::<Dynamic>()?;
    let service = shown(args.str(0)).to_ascii_lowercase();
    let name = match dynamic.service_name(ctx, &service) {
        Ok(name) => name,
        Err(why) => {
            return none(ctx, format!("vmod-dynamic {} {service} {why}", dynamic.name));
        }
    };
    dynamic.first_lookups(ctx, vec![name.clone()])?;
    let answer = name.answer();
    if answer.places.is_empty() {
        let why = match answer.failure {
            Some(why) => format!("cannot be resolved: {why}"),
            None => "is not resolved yet".to_owned(),
        };
        return none(ctx, format!("vmod-dynamic {} {service} {why}", dynamic.name));
    }
    let (mut targets, mut refused) = (Vec::with_capacity(answer.places.len()), None);
    for place in answer.places {
        let key = Key { host: place.host.clone(), port: place.port.to_string(), authority: None };
        match dynamic.domain(ctx, &key) {
            Ok(domain) => targets.push((place, domain.id)),
            Err(why) => {
                let why = format!("vmod-dynamic {} {service}: {}:{} {why}", dynamic.name, key.host, key.port);
                log(ctx, Tag::Error, &why);
                refused = Some(why);
            }
        }
    }
    if let Some(why) = refused.filter(|_| targets.is_empty()) {
        return none(ctx, why);
    }
    let cells = targets.iter().filter_map(|(_, id)| ctx.vcl.directors.get(*id));
    let hosts = cells.flat_map(|cell| cell.director.host_names()).collect();
    dynamic.first_lookups(ctx, hosts)?;
    let vcl = ctx.vcl;
    let chosen = choose(&targets, |id| vcl.directors.healthy(id, vcl).healthy, fine_fraction());
    Ok(Value::Backend(chosen))
}

/// Selects a target: of the lowest priority with a healthy one, by weight. Without a healthy one, the last target of the
/// lowest priority. `fraction` is a random number below 1.
fn choose(
    targets: &[(Place, BackendId)],
    is_healthy: impl Fn(BackendId) -> bool,
    fraction: f64,
) -> BackendId {
    for group in targets.chunk_by(|(one, _), (other, _)| one.priority == other.priority) {
        let healthy: Vec<&(Place, BackendId)> = group.iter().filter(|(_, id)| is_healthy(*id)).collect();
        // A weight of 0 is a small chance beside other weights.
        let weight = |place: &Place| f64::from(place.weight).max(0.01);
        let mut rest = fraction * healthy.iter().map(|(place, _)| weight(place)).sum::<f64>();
        for (place, id) in &healthy {
            rest -= weight(place);
            if rest < 0.0 {
                return *id;
            }
        }
        if let Some((_, id)) = healthy.last() {
            return *id;
        }
    }
    let lowest = targets.first().map(|(place, _)| place.priority);
    let last = targets.iter().rev().find(|(place, _)| Some(place.priority) == lowest);
    last.map_or(BackendId::NONE, |(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_come_before_weights() {
        let target = |priority, weight, id| {
            (Place { priority, weight, port: 80, host: format!("h{id}") }, BackendId(id))
        };
        let targets = [target(1, 0, 1), target(1, 0, 2), target(2, 10, 3), target(2, 30, 4)];
        let chosen = |healthy: &[u32], fraction| choose(&targets, |id| healthy.contains(&id.0), fraction).0;
        assert_eq!((chosen(&[1, 2, 3, 4], 0.2), chosen(&[1, 2, 3, 4], 0.9)), (1, 2));
        assert_eq!((chosen(&[2, 3], 0.0), chosen(&[3, 4], 0.2), chosen(&[3, 4], 0.3)), (2, 3, 4));
        assert_eq!(chosen(&[4], 0.999), 4);
        assert_eq!(chosen(&[], 0.5), 2, "nobody is healthy");
        assert_eq!(choose(&[], |_| true, 0.5), BackendId::NONE);
    }
}
