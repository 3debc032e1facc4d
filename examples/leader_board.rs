//! A leader board: points of players, and players by points. An update changes both, and a reader must see both changed or
//! neither, so two concurrent maps side by side would not do. Here it is written for one thread and replicated: each NUMA
//! node reads its own copy, and updates of a node's threads are carried out in batches.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::thread;

use archipelago::{Replicated, Sequential};

type Player = &'static str;

#[derive(Default)]
struct Board {
    points: HashMap<Player, u64>,
    ranking: BTreeSet<(Reverse<u64>, Player)>,
}

/// What readers ask.
enum Question {
    Top(usize),
    PointsOf(Player),
}

/// What players win.
struct Won(Player, u64);

impl Sequential for Board {
    type Read = Question;
    type Write = Won;
    type Response = Vec<(Player, u64)>;

    fn read(&self, question: &Question) -> Self::Response {
        match *question {
            Question::Top(count) => {
                self.ranking.iter().take(count).map(|(points, player)| (*player, points.0)).collect()
            }
            Question::PointsOf(player) => self.points.get(player).map(|points| (player, *points)).into_iter().collect(),
        }
    }

    fn write(&mut self, &Won(player, more): &Won) -> Self::Response {
        let points = self.points.entry(player).or_default();
        self.ranking.remove(&(Reverse(*points), player));
        *points += more;
        self.ranking.insert((Reverse(*points), player));
        vec![(player, *points)]
    }
}

fn main() {
    const GAMES: u64 = 10_000;
    let board = Replicated::new(Board::default);
    thread::scope(|scope| {
        for (player, points) in [("ada", 3), ("bob", 1), ("cleo", 2)] {
            // One handle for each thread; its first use binds it to that thread's node.
            let mut board = board.handle();
            scope.spawn(move || {
                for game in 1..=GAMES {
                    let now = board.write(Won(player, points)).expect("no update panics");
                    assert_eq!(now, [(player, game * points)]);
                }
            });
        }
        let mut board = board.handle();
        scope.spawn(move || {
            for _ in 0..1_000 {
                let top = board.read(&Question::Top(3)).expect("no update panics");
                assert!(top.is_sorted_by_key(|(_, points)| Reverse(*points)));
            }
        });
    });
    let mut board = board.handle();
    let top = board.read(&Question::Top(2)).expect("no update panics");
    assert_eq!(top, [("ada", 3 * GAMES), ("cleo", 2 * GAMES)]);
    assert_eq!(board.read(&Question::PointsOf("bob")), Ok(vec![("bob", GAMES)]));
    println!("the first two after {} games: {top:?}", 3 * GAMES);
}

#[test]
fn it_runs() {
    main();
}
