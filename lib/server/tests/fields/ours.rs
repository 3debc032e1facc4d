//! A database without sockets, whose clock the test sets, and a replica that gets each change in encoded form.

use archipelago_server::args::Args;
use archipelago_server::db::{Db, Effects};
use archipelago_server::operation::{Write, wish};
use archipelago_server::reply::Reply;
use archipelago_server::session::{Moment, Session, Step};

#[derive(Default)]
pub struct Ours {
    pub db: Db,
    pub replica: Db,
    session: Session,
    asked: u64,
    /// The effects of the last request.
    pub effects: Effects,
}

/// Returns an answer in one line.
pub fn shown(reply: &Reply) -> String {
    match reply {
        Reply::Null | Reply::NullArray => "nil".into(),
        Reply::Status(word) => format!("+{word}"),
        Reply::Int(number) => format!(":{number}"),
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Array(all) | Reply::Map(all) => format!("[{}]", all.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Reply::Error(fault) => format!("-{}", fault.0),
        other => format!("{other:?}"),
    }
}

impl Ours {
    pub fn ask<T: AsRef<[u8]>>(&mut self, words: &[T], now: u64) -> Reply {
        self.asked += 1;
        let args: Args = words.iter().collect();
        let moment = Moment { now, seed: self.asked, wishes: wish::EVENTS | wish::CHANGES };
        self.effects = Effects::default();
        let reply = match self.session.accept(args, moment) {
            Step::Reply(reply) => reply,
            Step::Read(read) => {
                let (one, other) = (self.db.read(&read), self.replica.read(&read));
                assert_eq!(one, other, "replicas differ: {read:?}");
                one.reply
            }
            Step::Write(write) => self.write(&write),
            step => panic!("{step:?}"),
        };
        reply.apart()
    }

    /// Carries out a change on both databases.
    pub fn write(&mut self, write: &Write) -> Reply {
        let mut bytes = Vec::new();
        write.encode(&mut bytes);
        let mut outcome = self.db.write(write);
        assert_eq!(outcome, self.replica.write(&Write::decode(&bytes).unwrap()), "replicas differ: {write:?}");
        self.effects = outcome.effects.take().map(|effects| *effects).unwrap_or_default();
        self.session.answer(write, &mut outcome)
    }

    pub fn line(&mut self, line: &str, now: u64) -> String {
        shown(&self.ask(&line.split(' ').collect::<Vec<_>>(), now))
    }
}
