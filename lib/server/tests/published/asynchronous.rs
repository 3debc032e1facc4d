//! The same tests with fred, a client that sends requests before it has the answers to earlier ones.

use archipelago_server::server::Server;
use fred::prelude::*;
use fred::types::RespVersion;
use std::collections::BTreeMap;

/// Runs a client's task to its end.
fn run(task: impl Future<Output = Result<(), Error>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(task).unwrap();
}

async fn connect(server: &Server, version: RespVersion) -> Result<Client, Error> {
    let mut config = Config::from_url(&format!("redis://{}", server.address()))?;
    config.version = version;
    let client = Builder::from_config(config).build()?;
    client.init().await?;
    Ok(client)
}

#[test]
fn values_and_transactions_in_both_protocols() {
    let server = super::server();
    run(async {
        for version in [RespVersion::RESP2, RespVersion::RESP3] {
            let client = connect(&server, version).await?;
            let _: () = client.flushall(false).await?;
            let _: () = client.set("string", "value", Some(Expiration::EX(100)), None, false).await?;
            assert_eq!(client.get::<Option<String>, _>("string").await?.as_deref(), Some("value"));
            assert_eq!(client.get::<Option<String>, _>("none").await?, None);
            assert!((1..=100).contains(&client.ttl::<i64, _>("string").await?));
            let _: () = client.hset("hash", [("a", 1), ("b", 2)]).await?;
            let hash: BTreeMap<String, i64> = client.hgetall("hash").await?;
            assert_eq!(hash, [("a".to_owned(), 1), ("b".to_owned(), 2)].into());
            assert_eq!(client.rpush::<usize, _, _>("list", vec!["x", "y"]).await?, 2);
            assert_eq!(client.lrange::<Vec<String>, _>("list", 0, -1).await?, ["x", "y"]);
            assert_eq!(client.zadd::<usize, _, _>("zset", None, None, false, false, (1.5, "m")).await?, 1);
            assert_eq!(client.zscore::<f64, _, _>("zset", "m").await?, 1.5);
            let wrong = client.incr::<i64, _>("list").await.unwrap_err();
            assert!(wrong.details().starts_with("WRONGTYPE"), "{wrong}");
            // All requests are sent at once, on one connection.
            let counts = (0..500).map(|_| client.incr::<i64, _>("number"));
            assert!(futures::future::try_join_all(counts).await?.into_iter().eq(1..=500));
            let transaction = client.multi();
            let _: () = transaction.incr("number").await?;
            let _: () = transaction.get("string").await?;
            assert_eq!(transaction.exec::<(i64, String)>(true).await?, (501, "value".to_owned()));
            client.quit().await?;
        }
        Ok(())
    });
}

#[test]
fn messages() {
    let server = super::server();
    run(async {
        for version in [RespVersion::RESP2, RespVersion::RESP3] {
            let (listener, client) = (connect(&server, version.clone()).await?, connect(&server, version).await?);
            let mut messages = listener.message_rx();
            let _: () = listener.subscribe("news").await?;
            // The client does not wait for the answer to a subscription, and keeps at most 32 messages.
            while client.publish::<i64, _, _>("news", 0).await? == 0 {}
            for number in 1..20 {
                assert_eq!(client.publish::<i64, _, _>("news", number).await?, 1);
            }
            for number in 0..20_i64 {
                let message = messages.recv().await.unwrap();
                assert_eq!((&*message.channel, message.value.as_i64()), ("news", Some(number)));
            }
            listener.quit().await?;
            client.quit().await?;
        }
        Ok(())
    });
}
