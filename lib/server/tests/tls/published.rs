//! The published client redis-rs uses TLS with its own certificate.

use crate::certificates::{Authority, Expired, secure_server};
use archipelago_server::config::tls::AuthClients;
use redis::{Client, ClientTlsConfig, Commands, TlsCertificates};

#[test]
fn redis_rs_with_a_certificate_and_without() {
    let authority = Authority::new("people");
    let server = secure_server(&authority, AuthClients::Yes);
    let url = format!("rediss://localhost:{}/", server.tls_address().unwrap().port());
    let (certificate, key) = authority.client(Expired::No);
    let own =
        ClientTlsConfig { client_cert: certificate.pem().into_bytes(), client_key: key.serialize_pem().into_bytes() };
    let root_cert = Some(std::fs::read(authority.directory.join("ca.crt")).unwrap());
    let certificates = TlsCertificates { client_tls: Some(own), root_cert: root_cert.clone() };
    let mut client = Client::build_with_tls(url.as_str(), certificates).unwrap().get_connection().unwrap();
    let _: () = client.set("k", vec![7_u8; 100_000]).unwrap();
    assert_eq!(client.get::<_, Vec<u8>>("k").unwrap(), [7; 100_000]);
    let numbers: Vec<i64> = (0..500).fold(&mut redis::pipe(), |pipe, _| pipe.incr("n", 1)).query(&mut client).unwrap();
    assert!(numbers.into_iter().eq(1..=500));
    let none = TlsCertificates { client_tls: None, root_cert };
    assert!(Client::build_with_tls(url.as_str(), none).unwrap().get_connection().is_err());
}
