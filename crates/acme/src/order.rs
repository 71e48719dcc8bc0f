//! One order: from its names to a certificate.

use std::time::{Duration, Instant};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, Error, Identifier, NewOrder, Order, OrderStatus,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::api::{block_on, with_nonces};
use crate::challenge::Method;
use crate::fault::Fault;
use crate::name::Names;
use crate::responses::Responses;
use crate::settings::MethodChoice;

/// The maximum time for the server to verify all names, and to issue the certificate.
const LIMIT: Duration = Duration::from_mins(5);
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The names of an order, and how they are verified.
pub struct Request<'a> {
    pub names: &'a Names,
    pub methods: MethodChoice,
    /// The number of failures before, which the choice of the method depends on.
    pub failures: u32,
    /// The certificate that this one replaces.
    pub replaces: Option<CertificateIdentifier<'static>>,
}

/// A name that the server wants verified, by the number of its authorization.
struct Pending {
    at: usize,
    method: Method,
}

/// Obtains a certificate. Returns it with its chain and its key, in PEM.
pub fn obtain(
    account: &Account,
    request: &Request<'_>,
    responses: &mut Responses<'_>,
) -> Result<String, Fault> {
    let mut order = begin(account, request).map_err(|error| Fault::from(error).during("new order"))?;
    let verified = verify(&mut order, request, responses);
    let verified = verified.and_then(|()| wait_until(&mut order, &[OrderStatus::Ready, OrderStatus::Valid]));
    responses.remove();
    verified?;
    finish(&mut order, request.names)
}

fn begin(account: &Account, request: &Request<'_>) -> Result<Order, Error> {
    let identifiers: Vec<_> = request.names.all().iter().map(|name| Identifier::Dns(name.clone())).collect();
    if let Some(replaces) = &request.replaces {
        let new = || NewOrder::new(&identifiers).replaces(replaces.clone());
        // The server refuses to replace a certificate twice, and one that it does not know.
        if let Ok(order) = with_nonces(|| block_on(account.new_order(&new()))) {
            return Ok(order);
        }
    }
    with_nonces(|| block_on(account.new_order(&NewOrder::new(&identifiers))))
}

/// Fetches the state of all authorizations.
fn fetch(order: &mut Order) -> Result<(), Error> {
    let mut all = order.authorizations();
    while let Some(authorization) = block_on(all.next()) {
        authorization?;
    }
    Ok(())
}

/// Publishes the responses to the challenges of all names, and tells the server so.
fn verify(order: &mut Order, request: &Request<'_>, responses: &mut Responses<'_>) -> Result<(), Fault> {
    if order.state().authorizations.len() > request.names.all().len() {
        return Err(Fault::new("the server wants more names verified than the order has"));
    }
    with_nonces(|| fetch(order)).map_err(|error| Fault::from(error).during("authorizations"))?;
    let pending = respond(order, request, responses)?;
    responses.publish()?;
    for Pending { at, method } in pending {
        with_nonces(|| set_ready(order, at, method))
            .map_err(|error| Fault::from(error).during(method.name()))?;
    }
    Ok(())
}

/// Prepares the responses for all names that are not verified yet.
fn respond(
    order: &mut Order,
    request: &Request<'_>,
    responses: &mut Responses<'_>,
) -> Result<Vec<Pending>, Fault> {
    let mut pending = Vec::new();
    let mut all = order.authorizations();
    let mut at = 0;
    while let Some(authorization) = block_on(all.next()) {
        let mut authorization = authorization?;
        let Identifier::Dns(name) = authorization.identifier().identifier.clone() else {
            return Err(Fault::new("the server wants something verified that is not a name"));
        };
        let is_wildcard = authorization.wildcard;
        let wanted = if is_wildcard { format!("*.{name}") } else { name.clone() };
        if !request.names.all().contains(&wanted) {
            return Err(Fault::new(format_args!(
                "the server wants \"{name}\" verified, which is not in the order"
            )));
        }
        match authorization.status {
            AuthorizationStatus::Valid => {}
            AuthorizationStatus::Pending => {
                let preferred = request.methods.method(is_wildcard, request.failures);
                let offered = authorization
                    .challenges
                    .iter()
                    .map(|challenge| challenge.r#type.clone())
                    .collect::<Vec<_>>();
                let method = choose(preferred, request.methods, &offered).ok_or_else(|| {
                    Fault::new(format_args!("{wanted}: the server does not offer {}", preferred.name()))
                })?;
                let challenge = authorization.challenge(method.kind());
                let challenge = challenge.ok_or_else(|| Fault::new("a challenge has disappeared"))?;
                responses.add(method, &name, &challenge.token, &challenge.key_authorization())?;
                pending.push(Pending { at, method });
            }
            status => return Err(Fault::new(format_args!("{wanted}: the authorization is {status:?}"))),
        }
        at += 1;
    }
    Ok(pending)
}

/// Returns the method to use. If the operator has no preference, another one replaces a method that is not offered.
fn choose(
    preferred: Method,
    methods: MethodChoice,
    offered: &[instant_acme::ChallengeType],
) -> Option<Method> {
    let others: &[Method] = match (methods, preferred) {
        (MethodChoice::Auto, Method::Http | Method::TlsAlpn) => &[Method::Http, Method::TlsAlpn],
        _ => &[],
    };
    [preferred].into_iter().chain(others.iter().copied()).find(|method| offered.contains(&method.kind()))
}

fn set_ready(order: &mut Order, at: usize, method: Method) -> Result<(), Error> {
    let mut all = order.authorizations();
    for _ in 0..at {
        if let Some(authorization) = block_on(all.next()) {
            authorization?;
        }
    }
    let mut authorization = block_on(all.next()).ok_or(Error::Str("an authorization"))??;
    let mut challenge = authorization.challenge(method.kind()).ok_or(Error::Str("a challenge"))?;
    block_on(challenge.set_ready())
}

/// Waits until the order has one of these states.
fn wait_until(order: &mut Order, wanted: &[OrderStatus]) -> Result<(), Fault> {
    let deadline = Instant::now() + LIMIT;
    let mut pause = FIRST_WAIT;
    loop {
        let status = with_nonces(|| block_on(order.refresh()).map(|state| state.status))?;
        if wanted.contains(&status) {
            return Ok(());
        }
        if status == OrderStatus::Invalid {
            return Err(refusal(order));
        }
        if Instant::now() + pause > deadline {
            return Err(Fault::new(format_args!(
                "the order is still {status:?} after {} s",
                LIMIT.as_secs()
            )));
        }
        std::thread::sleep(pause);
        pause = pause.mul_f32(1.5).min(LONGEST_WAIT);
    }
}

/// Returns why the server has refused an order, as far as it says.
fn refusal(order: &mut Order) -> Fault {
    let general = order.state().error.as_ref().map(ToString::to_string);
    let mut reasons = Vec::new();
    if with_nonces(|| fetch(order)).is_ok() {
        let mut all = order.authorizations();
        while let Some(Ok(authorization)) = block_on(all.next()) {
            for challenge in &authorization.challenges {
                if let Some(error) = &challenge.error {
                    let name = authorization.identifier();
                    reasons.push(format!("{name}: {:?}: {error}", challenge.r#type));
                }
            }
        }
    }
    reasons.extend(general.filter(|_| reasons.is_empty()));
    if reasons.is_empty() {
        return Fault::new("the server has refused the order and gives no reason");
    }
    Fault::new(reasons.join("; "))
}

/// Requests and fetches the certificate for a new key.
fn finish(order: &mut Order, names: &Names) -> Result<String, Fault> {
    let key = KeyPair::generate().map_err(Fault::new)?;
    let mut params = CertificateParams::new(names.all().to_vec()).map_err(Fault::new)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(Fault::new)?;
    if order.state().status == OrderStatus::Ready {
        with_nonces(|| block_on(order.finalize_csr(request.der())))
            .map_err(|error| Fault::from(error).during("finalize"))?;
        wait_until(order, &[OrderStatus::Valid])?;
    } else {
        // It was issued for a key of an earlier attempt, which is lost.
        return Err(Fault::new("the order has been used before"));
    }
    let chain = with_nonces(|| block_on(order.certificate()))
        .map_err(|error| Fault::from(error).during("certificate"))?
        .ok_or_else(|| Fault::new("the server sends no certificate"))?;
    Ok(chain + "\n" + &key.serialize_pem())
}
