//! Clients that try to bypass access control.

use crate::client::{Client, server, started};
use archipelago_server::server::Settings;
use std::{env, fs};

/// Every command that names a key, except those for administrators, is sent with a key that the user may not access. No
/// command reveals or changes anything.
#[test]
fn no_command_gets_at_a_key_of_others() {
    let server = server(1);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +@all -@admin -@dangerous -@connection +multi +exec ~mine* resetchannels");
    root.ask("SET theirs secret");
    root.ask("RPUSH mine 1");
    user.ask("AUTH u x");
    let rows = user_visible();
    assert!(rows.len() > 150, "the registry has {} commands with keys", rows.len());
    let before = root.ask("DBSIZE") + &root.ask("GET theirs");
    for (name, words) in rows {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let answer = user.call(&words).unwrap();
        assert!(answer.starts_with("-NOPERM"), "{name}: {words:?} was answered with {answer}");
        user.ask("MULTI");
        assert!(user.call(&words).unwrap().starts_with("-"), "{name} was queued");
        assert!(user.ask("EXEC").starts_with("-EXECABORT"), "{name} in a transaction");
    }
    assert_eq!(root.ask("DBSIZE") + &root.ask("GET theirs"), before);
    assert!(user.ask("ACL SETUSER u +@all").starts_with("-NOPERM"));
    assert!(user.ask("PUBLISH news 1").starts_with("-NOPERM"));
}

/// Returns one request for each command with keys, except those for administrators. The last key of each request
/// belongs to another user.
fn user_visible() -> Vec<(&'static str, Vec<String>)> {
    use archipelago_server::args::Args;
    use archipelago_server::command::{self, Keys, flag};
    let mut requests = Vec::new();
    for command in command::all().filter(|command| !command.has(flag::INTERNAL | flag::ADMIN)) {
        let least = command.arity.unsigned_abs() as usize;
        for length in least..least + 3 {
            let mut words = vec![command.name.to_owned()];
            match command.keys {
                Keys::None => continue,
                Keys::Streams => words.extend(["STREAMS", "theirs", "0"].map(str::to_owned)),
                _ => words.extend((1..length).map(|_| "1".to_owned())),
            }
            let args: Args = words.iter().collect();
            if let Some(place) = command.keys.places(&args).last().filter(|_| command.takes(args.len())) {
                words[*place] = "theirs".to_owned();
                requests.push((command.name, words));
                break;
            }
        }
    }
    requests
}

#[test]
fn a_script_does_what_its_user_may() {
    let server = server(2);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +@all ~mine*");
    root.ask("SET theirs secret");
    user.ask("AUTH u x");
    let eval = |client: &mut Client, name: &str, body: &str| client.call(&[name, body, "0"]).unwrap();
    assert_eq!(eval(&mut user, "EVAL", "return redis.call('set', 'mine', '1')"), "+OK");
    for name in ["EVAL", "EVAL_RO"] {
        assert!(eval(&mut user, name, "return redis.call('get', 'theirs')").contains("can't access"), "{name}");
        assert_eq!(eval(&mut root, name, "return redis.call('get', 'theirs')"), "secret");
    }
    // The user's rights at the time of `EXEC` count.
    user.ask("MULTI");
    assert_eq!(eval(&mut user, "EVAL", "return redis.call('get', 'mine')"), "+QUEUED");
    root.ask("ACL SETUSER u resetkeys ~other");
    assert!(user.ask("EXEC").contains("can't access"));
    // The permission for `EVALSHA` is that of its own name, in a transaction as well.
    root.ask("ACL SETUSER u -eval ~mine");
    let digest = root.ask("SCRIPT LOAD return");
    let digest = digest.trim_start_matches('+');
    user.ask("MULTI");
    assert_eq!(user.ask(&format!("EVALSHA {digest} 0")), "+QUEUED");
    assert_eq!(user.ask("EXEC"), "$-1");
    assert!(eval(&mut user, "EVAL", "return 1").starts_with("-NOPERM"));
}

#[test]
fn a_function_does_what_its_user_may() {
    let server = server(2);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +@all -function +function|list ~mine*");
    root.ask("SET theirs secret");
    user.ask("AUTH u x");
    let code = "#!lua name=lib\n\
        redis.register_function('get', function(keys, args) return redis.call('get', args[1]) end)\n\
        redis.register_function{function_name='read', flags={'no-writes'}, callback=function(keys, args)\n\
          return redis.call('get', args[1]) end}";
    assert_eq!(root.call(&["FUNCTION", "LOAD", code]).unwrap(), "lib");
    assert!(user.call(&["FUNCTION", "LOAD", "REPLACE", code]).unwrap().starts_with("-NOPERM"));
    for part in ["DELETE lib", "FLUSH", "DUMP", "RESTORE x", "STATS"] {
        let name = part.split(' ').next().unwrap().to_lowercase();
        let refused = format!("-NOPERM this user has no permissions to run the 'function|{name}' command");
        assert_eq!(user.ask(&format!("FUNCTION {part}")), refused);
    }
    assert!(user.ask("FUNCTION LIST").contains("no-writes"));
    // The internal name of a subcommand is not a command.
    assert!(root.ask("FUNCTION|FLUSH FLUSH").starts_with("-ERR unknown command"));
    for call in ["FCALL get", "FCALL read", "FCALL_RO read"] {
        assert!(user.ask(&format!("{call} 0 theirs")).contains("can't access"), "{call}");
        assert!(user.ask(&format!("{call} 1 theirs mine")).starts_with("-NOPERM"), "{call}");
        assert_eq!(root.ask(&format!("{call} 0 theirs")), "secret");
        assert_eq!(user.ask(&format!("{call} 1 mine mine")), "$-1");
        // The user's rights at the time of `EXEC` count.
        user.ask("MULTI");
        assert_eq!(user.ask(&format!("{call} 0 mine")), "+QUEUED");
        root.ask("ACL SETUSER u resetkeys ~other");
        assert!(user.ask("EXEC").contains("can't access"), "{call}");
        root.ask("ACL SETUSER u resetkeys ~mine*");
    }
    root.ask("ACL SETUSER u -@scripting");
    assert!(user.ask("FCALL get 0 mine").starts_with("-NOPERM"));
}

#[test]
fn one_that_waits_for_a_key_gets_it_only_if_it_still_may() {
    let server = server(2);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +@all ~k");
    user.ask("AUTH u x");
    user.send(&crate::client::request(&["BLPOP", "k", "0"])).unwrap();
    while !root.ask("INFO clients").contains("blocked_clients:1") {}
    root.ask("ACL SETUSER u resetkeys");
    root.ask("RPUSH k secret");
    assert!(user.answer().unwrap().starts_with("-NOPERM"));
    assert_eq!(root.ask("LLEN k"), ":1");
}

#[test]
fn a_user_that_is_gone_takes_its_clients_along() {
    let server = server(2);
    let (mut root, mut user, mut hears) =
        (Client::new(server.address()), Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +@all ~* &*");
    user.ask("AUTH u x");
    user.send(&crate::client::request(&["BLPOP", "k", "0"])).unwrap();
    root.ask("ACL SETUSER v on nopass +@all ~* &news &other");
    hears.ask("AUTH v x");
    hears.ask("SUBSCRIBE news");
    root.ask("ACL SETUSER v resetchannels &news");
    root.ask("PUBLISH news 1");
    assert_eq!(hears.answer().unwrap(), "message news 1");
    root.ask("ACL SETUSER v resetchannels &other");
    assert!(hears.answer().is_err(), "it hears what it may not");
    assert_eq!(root.ask("ACL DELUSER u"), ":1");
    assert!(user.answer().is_err(), "it has no user");
}

#[test]
fn users_are_kept_in_a_file() {
    let directory = env::temp_dir().join(format!("archipelago-acl-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("users");
    fs::write(&path, "user default off\nuser root on >pw ~* &* +@all\n\n").unwrap();
    let settings = Settings { aclfile: Some(path.clone()), ..Settings::default() };
    let server = started(settings.clone());
    let mut root = Client::new(server.address());
    assert_eq!(root.ask("GET a"), "-NOAUTH Authentication required.");
    assert_eq!(root.ask("AUTH root pw"), "+OK");
    root.ask("ACL SETUSER bob on >b +get ~a");
    assert_eq!(root.ask("ACL SAVE"), "+OK");
    let lines = root.ask("ACL LIST");
    server.stop().unwrap();
    let server = started(settings.clone());
    let mut root = Client::new(server.address());
    assert_eq!(root.ask("AUTH root pw"), "+OK");
    assert_eq!(root.ask("ACL LIST"), lines);
    // A file with a wrong line changes nothing.
    fs::write(&path, "user root on\nuser bob what\n").unwrap();
    assert!(root.ask("ACL LOAD").contains("users:2: Syntax error"));
    assert_eq!(root.ask("ACL LIST"), lines);
    server.stop().unwrap();
    let settings = Settings { address: ([127, 0, 0, 1], 0).into(), ..settings };
    assert!(archipelago_server::server::Server::start(&settings).is_err(), "it starts with a file that is wrong");
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn refusals_are_logged_and_counted() {
    let server = server(1);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +get +multi ~a");
    user.ask("AUTH u x");
    (0..3).for_each(|_| _ = user.ask("GET b"));
    user.ask("MULTI");
    user.ask("SET a 1");
    user.ask("AUTH u x");
    let log = root.ask("ACL LOG");
    assert!(log.contains("count :3 reason key context toplevel object b username u"), "{log}");
    assert!(log.contains("count :1 reason command context multi object set username u"), "{log}");
    root.ask("CONFIG SET acllog-max-len 1");
    user.ask("DEL a");
    assert!(!root.ask("ACL LOG").contains("object b"));
}

/// Permissions are checked before a long read, which another thread carries out, and before a key is recorded for a
/// client's cache.
#[test]
fn long_reads_and_caches_are_checked_first() {
    let server = server(2);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    let numbers: Vec<String> = (0..50_000).map(|number| number.to_string()).collect();
    for key in ["mine", "theirs"] {
        let words: Vec<&str> = ["RPUSH", key].into_iter().chain(numbers.iter().map(String::as_str)).collect();
        assert_eq!(root.call(&words).unwrap(), ":50000");
    }
    root.ask("ACL SETUSER u on nopass +@all ~mine");
    assert_eq!(user.ask("AUTH u x"), "+OK");
    for request in
        ["SORT theirs", "SORT mine BY theirs*", "SORT mine GET theirs*", "LRANGE theirs 0 -1", "LPOS theirs x"]
    {
        let answer = user.ask(request);
        assert!(answer.starts_with("-NOPERM") || answer.starts_with("-ERR"), "{request}: {answer:.80}");
    }
    assert_eq!(user.ask("SORT mine").split(' ').count(), 50_000);
    root.ask("ACL SETUSER u resetkeys");
    assert!(user.ask("SORT mine").starts_with("-NOPERM"));
    root.ask("ACL SETUSER u ~small");
    let mut hears = Client::new(server.address());
    let number = hears.ask("CLIENT ID").replace(':', "");
    hears.ask("SUBSCRIBE __redis__:invalidate");
    assert_eq!(user.ask(&format!("CLIENT TRACKING ON REDIRECT {number}")), "+OK");
    assert!(user.ask("GET theirs").starts_with("-NOPERM"));
    user.ask("GET small");
    root.ask("DEL theirs");
    root.ask("SET small 1");
    let heard = hears.answer().unwrap();
    assert_eq!(heard, "message __redis__:invalidate small", "it hears of a key that it may not read");
}

/// `INFO` counts all clients and the waiting clients. While a client is served, the lock of the waiting clients is held and
/// the lock of all clients is acquired. `INFO` must not hold these locks in the opposite order.
#[test]
fn being_served_and_counted_do_not_wait_for_each_other() {
    let server = server(6);
    let asked = |words: &'static str, right: fn(&str) -> bool| {
        let mut client = Client::new(server.address());
        move || (0..5_000).for_each(|_| assert!(right(&client.ask(words))))
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(asked("BLPOP k 0", |answer| answer == "k x"));
            scope.spawn(asked("INFO clients", |answer| answer.contains("blocked_clients")));
            scope.spawn(asked("RPUSH k x", |answer| answer.starts_with(':')));
            scope.spawn(asked("INFO clients", |answer| answer.contains("blocked_clients")));
        }
    });
}

/// After a user is removed, its clients do not become clients of a new user with the same name.
#[test]
fn a_name_made_anew_is_another_user() {
    let server = server(2);
    let mut root = Client::new(server.address());
    for _ in 0..200 {
        let mut user = Client::new(server.address());
        root.ask("ACL SETUSER u on >old +get ~a");
        assert_eq!(user.ask("AUTH u old"), "+OK");
        user.send(&crate::client::request(&["GET", "a"]).repeat(50)).unwrap();
        let both = [&["ACL", "DELUSER", "u"][..], &["ACL", "SETUSER", "u", "on", ">new", "+set", "~a"]];
        root.send(&both.map(crate::client::request).concat()).unwrap();
        assert_eq!((root.answer().unwrap().as_str(), root.answer().unwrap().as_str()), (":1", "+OK"));
        // The client is answered as the former user, or not at all.
        let _ = user.send(&crate::client::request(&["SET", "a", "1"]));
        while let Ok(answer) = user.answer() {
            assert!(answer == "$-1", "{answer}");
        }
        assert_eq!(root.ask("ACL DELUSER u"), ":1");
    }
}

/// `ACL DRYRUN` tells about the rights of all users, so only administrators may call it.
#[test]
fn only_administrators_try_the_rights_of_others() {
    let server = server(1);
    let mut user = Client::new(server.address());
    user.ask("ACL SETUSER u on nopass ~* +@all -@dangerous");
    user.ask("ACL SETUSER v on nopass ~* +@all -@admin");
    for name in ["u", "v"] {
        assert_eq!(user.ask(&format!("AUTH {name} x")), "+OK");
        assert!(user.ask("ACL DRYRUN default GET a").starts_with("-NOPERM"), "{name}");
    }
}

#[test]
fn the_word_streams_in_another_place_opens_nothing() {
    let server = server(1);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass ~streams ~st* +xreadgroup +xread");
    for group in ["g", "STREAMS"] {
        root.ask(&format!("XGROUP CREATE secret {group} $ MKSTREAM"));
    }
    root.ask("XADD secret 1-1 f v");
    user.ask("AUTH u x");
    for line in [
        "XREADGROUP GROUP g STREAMS STREAMS secret >",
        "XREADGROUP GROUP STREAMS STREAMS STREAMS secret >",
        "XREADGROUP NOACK NOACK NOACK GROUP STREAMS c STREAMS secret >",
        "XREADGROUP COUNT 1 BLOCK 1 GROUP g STREAMS STREAMS secret >",
        "XREAD STREAMS secret 0",
    ] {
        assert!(user.ask(line).starts_with("-NOPERM"), "{line}");
    }
}

/// As in Redis, an `EXEC` that is refused itself discards the transaction, and the client watches nothing any more.
#[test]
fn a_refused_exec_ends_its_transaction() {
    let server = server(1);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +@all -exec ~*");
    user.ask("AUTH u x");
    for line in ["WATCH a", "MULTI", "SET a 1"] {
        assert!(!user.ask(line).starts_with('-'), "{line}");
    }
    let refused = "NOPERM this user has no permissions to run the 'exec' command";
    assert_eq!(user.ask("EXEC"), format!("-EXECABORT Transaction discarded because of: {refused}"));
    assert_eq!(user.ask("GET a"), "$-1", "it is not queued");
    assert_eq!(user.ask("DISCARD"), "-ERR DISCARD without MULTI");
    assert_eq!(user.ask("EXEC"), format!("-{refused}"), "without a transaction");
    root.ask("SET a 2");
    root.ask("ACL SETUSER u +exec");
    for line in ["MULTI", "GET a"] {
        user.ask(line);
    }
    assert_eq!(user.ask("EXEC"), "2", "it does not watch the changed key");
}

/// A `SELECT` that is no longer allowed at `EXEC` selects nothing: neither for the commands after it nor for the client.
#[test]
fn a_refused_select_selects_nothing() {
    let server = server(1);
    let (mut root, mut user) = (Client::new(server.address()), Client::new(server.address()));
    root.ask("ACL SETUSER u on nopass +@all ~*");
    user.ask("AUTH u x");
    for (rule, database) in [("+select", 3), ("-select", 1)] {
        user.ask("SELECT 1");
        for line in ["MULTI", "SELECT 2", "SELECT 3", "SET a x"] {
            user.ask(line);
        }
        root.ask(&format!("ACL SETUSER u {rule}"));
        let answer = user.ask("EXEC");
        assert_eq!(answer.contains("-NOPERM"), rule == "-select", "{answer}");
        for other in 0..4 {
            root.ask(&format!("SELECT {other}"));
            assert_eq!(root.ask("DEL a"), format!(":{}", u32::from(other == database)), "{rule}, database {other}");
        }
        assert!(user.ask("CLIENT INFO").contains(&format!(" db={database} ")), "{rule}");
    }
}

/// As with `ACL DELUSER`: after a user is removed by `ACL LOAD`, its clients do not become clients of a new user with the
/// same name. Clients of other users stay.
#[test]
fn a_name_loaded_anew_is_another_user() {
    let directory = env::temp_dir().join(format!("archipelago-acl-anew-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("users");
    let kept = "user default on nopass ~* &* +@all\nuser kept on nopass +@all ~*\n";
    fs::write(&path, kept).unwrap();
    let server = started(Settings { aclfile: Some(path), loops: 2, ..Settings::default() });
    let (mut root, mut stays) = (Client::new(server.address()), Client::new(server.address()));
    stays.ask("AUTH kept x");
    for _ in 0..200 {
        let mut user = Client::new(server.address());
        root.ask("ACL SETUSER u on >old +get ~a");
        assert_eq!(user.ask("AUTH u old"), "+OK");
        user.send(&crate::client::request(&["GET", "a"]).repeat(50)).unwrap();
        let both = [&["ACL", "LOAD"][..], &["ACL", "SETUSER", "u", "on", ">new", "+set", "~a"]];
        root.send(&both.map(crate::client::request).concat()).unwrap();
        assert_eq!((root.answer().unwrap().as_str(), root.answer().unwrap().as_str()), ("+OK", "+OK"));
        // The client is answered as the former user, or not at all.
        let _ = user.send(&crate::client::request(&["SET", "a", "1"]));
        while let Ok(answer) = user.answer() {
            assert!(answer == "$-1", "{answer}");
        }
        assert_eq!(root.ask("ACL DELUSER u"), ":1");
        assert_eq!(stays.ask("PING"), "+PONG");
    }
    fs::remove_dir_all(&directory).unwrap();
}
