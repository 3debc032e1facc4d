//! Geographic positions. They are members of sorted sets. The score of a member encodes its position: 26 bits of
//! longitude and 26 bits of latitude, interleaved.
//!
//! A search examines all members of the sorted set: O(n). If no order is requested, the answer is in the order of
//! scores. `COUNT` without `ANY` is the exception: it sorts by distance, the nearest member first.

use crate::args::Args;
use crate::command::{Command, Keys, ONE_KEY, category, flag};
use crate::db::zset::Zset;
use crate::db::{Change, View};
use crate::family::parse;
use crate::family::zsets::zadd;
use crate::reply::{Answer, Fault, Reply, fault};
use category::GEO;
use flag::DENYOOM;

/// The commands of this family.
#[rustfmt::skip]
pub const COMMANDS: &[Command] = &[
    Command::write("geoadd", -5, DENYOOM, ONE_KEY, GEO, geoadd),
    Command::read("geodist", -4, 0, ONE_KEY, GEO, geodist),
    Command::read("geohash", -2, 0, ONE_KEY, GEO, geohash),
    Command::read("geopos", -2, 0, ONE_KEY, GEO, geopos),
    Command::read("geosearch", -7, 0, ONE_KEY, GEO, |v, a| told(v, a, Form::Search)),
    Command::write("geosearchstore", -8, DENYOOM, Keys::Range(1, 2, 1), GEO, |c, a| stored(c, a, Form::SearchStore)),
    Command::write("georadius", -6, DENYOOM, Keys::Stores, GEO, |c, a| stored(c, a, Form::Radius)),
    Command::write("georadiusbymember", -5, DENYOOM, Keys::Stores, GEO, |c, a| stored(c, a, Form::RadiusByMember)),
    Command::read("georadius_ro", -6, 0, ONE_KEY, GEO, |v, a| told(v, a, Form::RadiusRo)),
    Command::read("georadiusbymember_ro", -5, 0, ONE_KEY, GEO, |v, a| told(v, a, Form::RadiusByMemberRo)),
];

/// The number of bits of a coordinate.
const STEPS: i32 = 26;
const EARTH_RADIUS: f64 = 6_372_797.560856;
/// The largest latitude that the Mercator projection covers, in degrees.
const LATITUDE: f64 = 85.05112878;

/// A position: longitude and latitude in degrees.
type Coordinates = (f64, f64);

/// Interleaves the bits of two numbers. The lowest bit is the lowest bit of `even`.
fn interleave(even: u32, odd: u32) -> u64 {
    (0..32).fold(0, |bits, at| bits | u64::from(even >> at & 1) << (2 * at) | u64::from(odd >> at & 1) << (2 * at + 1))
}

fn every_second(bits: u64) -> u32 {
    (0..32).fold(0, |part, at| part | ((bits >> (2 * at) & 1) as u32) << at)
}

/// Encodes a position. Latitudes range from -`largest` to `largest` degrees.
fn bits((longitude, latitude): Coordinates, largest: f64) -> u64 {
    let scale = f64::from(1 << STEPS);
    let north = (latitude + largest) / (2.0 * largest) * scale;
    let east = (longitude + 180.0) / 360.0 * scale;
    interleave(north as u32, east as u32)
}

/// Returns the centre of the cell that a score encodes.
fn place(score: f64) -> Coordinates {
    let bits = score as u64;
    let scale = (1_u64 << STEPS) as f64;
    let middle = |part: u32, least: f64, width: f64| {
        let edge = |part: f64| least + part / scale * width;
        (edge(f64::from(part)) + edge(f64::from(part) + 1.0)) / 2.0
    };
    let longitude = middle(every_second(bits >> 1), -180.0, 360.0);
    let latitude = middle(every_second(bits), -LATITUDE, 2.0 * LATITUDE);
    (longitude.clamp(-180.0, 180.0), latitude.clamp(-LATITUDE, LATITUDE))
}

fn radians(degrees: f64) -> f64 {
    degrees * (core::f64::consts::PI / 180.0)
}

fn north_distance(one: f64, other: f64) -> f64 {
    EARTH_RADIUS * (radians(other) - radians(one)).abs()
}

/// Returns the distance between two positions along the surface, in metres.
fn distance((east, north): Coordinates, (other_east, other_north): Coordinates) -> f64 {
    let v = ((radians(other_east) - radians(east)) / 2.0).sin();
    if v == 0.0 {
        return north_distance(north, other_north);
    }
    let (one, other) = (radians(north), radians(other_north));
    let u = ((other - one) / 2.0).sin();
    2.0 * EARTH_RADIUS * (u * u + one.cos() * other.cos() * v * v).sqrt().asin()
}

fn longitude_latitude(args: &Args, at: usize) -> Result<Coordinates, Fault> {
    let (longitude, latitude) = (parse::float(&args[at])?, parse::float(&args[at + 1])?);
    if longitude.abs() > 180.0 || latitude.abs() > LATITUDE {
        return Err(Fault::made(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")));
    }
    Ok((longitude, latitude))
}

/// Returns the number of metres of a unit.
fn unit(text: &[u8]) -> Result<f64, Fault> {
    match text.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(Fault::new("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

fn geoadd(change: &mut Change<'_>, args: &Args) -> Answer {
    let (mut at, mut nx, mut xx) = (2, false, false);
    while args.is(at, "NX") || args.is(at, "XX") || args.is(at, "CH") {
        nx |= args.is(at, "NX");
        xx |= args.is(at, "XX");
        at += 1;
    }
    if !(args.len() - at).is_multiple_of(3) || (nx && xx) {
        return Err(fault::SYNTAX);
    }
    let mut words: Args = core::iter::once(&b"zadd"[..]).chain((1..at).map(|at| &args[at])).collect();
    for at in (at..args.len()).step_by(3) {
        let score = bits(longitude_latitude(args, at)?, LATITUDE);
        words.push(score.to_string().as_bytes());
        words.push(&args[at + 2]);
    }
    zadd(change, &words, false)
}

fn score(view: &View<'_>, key: &[u8], member: &[u8]) -> Result<Option<f64>, Fault> {
    Ok(view.get::<Zset>(key)?.and_then(|zset| zset.score(member)))
}

fn digits(distance: f64) -> Reply {
    Reply::bulk(format!("{distance:.4}"))
}

fn geodist(view: &View<'_>, args: &Args) -> Answer {
    let metres = match args.len() {
        4 => 1.0,
        5 => unit(&args[4])?,
        _ => return Err(fault::SYNTAX),
    };
    let (one, other) = (score(view, &args[1], &args[2])?, score(view, &args[1], &args[3])?);
    Ok(one.zip(other).map_or(Reply::Null, |(one, other)| digits(distance(place(one), place(other)) / metres)))
}

fn geohash(view: &View<'_>, args: &Args) -> Answer {
    const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    view.get::<Zset>(&args[1])?;
    let word = |score: f64| {
        // The standard geohash has latitudes from -90 to 90 degrees and 55 bits. A score has 52 bits, so the last
        // letter is unknown and written as "0".
        let bits = bits(place(score), 90.0);
        let letter = |at: i32| if at == 10 { b'0' } else { ALPHABET[(bits >> (52 - 5 * (at + 1)) & 31) as usize] };
        (0..11).map(letter).collect::<Vec<u8>>()
    };
    let rows = args.from(2).map(|member| Ok(Reply::optional(score(view, &args[1], member)?.map(word))));
    rows.collect::<Result<_, Fault>>().map(Reply::Array)
}

fn coordinates((longitude, latitude): Coordinates) -> Reply {
    let human = |degrees: f64| {
        let text = format!("{degrees:.17}");
        Reply::Digits(text.trim_end_matches('0').trim_end_matches('.').to_owned())
    };
    Reply::Array(vec![human(longitude), human(latitude)])
}

fn geopos(view: &View<'_>, args: &Args) -> Answer {
    view.get::<Zset>(&args[1])?;
    let row = |score: Option<f64>| score.map_or(Reply::NullArray, |score| coordinates(place(score)));
    let rows = args.from(2).map(|member| Ok(row(score(view, &args[1], member)?)));
    rows.collect::<Result<_, Fault>>().map(Reply::Array)
}

/// The command that searches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Search,
    SearchStore,
    Radius,
    RadiusByMember,
    RadiusRo,
    RadiusByMemberRo,
}

/// The area that is searched.
#[derive(Clone, Copy)]
enum Shape {
    /// The radius in metres.
    Circle(f64),
    /// The width and the height in metres.
    Box(f64, f64),
}

/// The options of a search.
#[derive(Default)]
struct Search<'a> {
    center: Option<Coordinates>,
    /// The centre is a member, but the key does not exist.
    center_is_missing: bool,
    shape: Option<Shape>,
    metres: f64,
    count: usize,
    any: bool,
    /// The order of the answer: `true` for the farthest member first, `false` for the nearest first.
    descending: Option<bool>,
    with: (bool, bool, bool),
    store: Option<&'a [u8]>,
    store_distance: bool,
}

/// A member that was found, with its score, position and distance.
struct Found {
    member: Vec<u8>,
    score: f64,
    place: Coordinates,
    distance: f64,
}

impl<'a> Search<'a> {
    fn parse(args: &'a Args, form: Form, zset: Option<&Zset>) -> Result<Self, Fault> {
        let mut search = Self { metres: 1.0, ..Self::default() };
        let mut at = match form {
            Form::Search => 2,
            Form::SearchStore => {
                search.store = Some(&args[1]);
                3
            }
            Form::Radius | Form::RadiusRo => {
                search.center = Some(longitude_latitude(args, 2)?);
                search.circle(args, 4)?;
                6
            }
            Form::RadiusByMember | Form::RadiusByMemberRo => {
                search.member(zset, &args[2])?;
                if zset.is_some() {
                    search.circle(args, 3)?;
                }
                5
            }
        };
        let searches = matches!(form, Form::Search | Form::SearchStore);
        let stores = matches!(form, Form::Radius | Form::RadiusByMember);
        // As in Redis, the same kind of centre or shape may be given several times. The last one counts.
        let mut from_member = None;
        while at < args.len() {
            let left = args.len() - at - 1;
            let mut step = 1;
            match () {
                () if args.is(at, "WITHDIST") => search.with.0 = true,
                () if args.is(at, "WITHHASH") => search.with.1 = true,
                () if args.is(at, "WITHCOORD") => search.with.2 = true,
                () if args.is(at, "ANY") => search.any = true,
                () if args.is(at, "ASC") => search.descending = Some(false),
                () if args.is(at, "DESC") => search.descending = Some(true),
                () if args.is(at, "COUNT") && left >= 1 => {
                    let count = usize::try_from(parse::integer(&args[at + 1])?).ok().filter(|count| *count > 0);
                    search.count = count.ok_or(Fault::new("ERR COUNT must be > 0"))?;
                    step = 2;
                }
                () if stores && left >= 1 && (args.is(at, "STORE") || args.is(at, "STOREDIST")) => {
                    search.store = Some(&args[at + 1]);
                    search.store_distance = args.is(at, "STOREDIST");
                    step = 2;
                }
                () if form == Form::SearchStore && args.is(at, "STOREDIST") => search.store_distance = true,
                () if searches && args.is(at, "FROMMEMBER") && left >= 1 && from_member != Some(false) => {
                    from_member = Some(true);
                    search.member(zset, &args[at + 1])?;
                    step = 2;
                }
                () if searches && args.is(at, "FROMLONLAT") && left >= 2 && from_member != Some(true) => {
                    from_member = Some(false);
                    search.center = Some(longitude_latitude(args, at + 1)?);
                    step = 3;
                }
                () if searches
                    && args.is(at, "BYRADIUS")
                    && left >= 2
                    && !matches!(search.shape, Some(Shape::Box(..))) =>
                {
                    search.circle(args, at + 1)?;
                    step = 3;
                }
                () if searches
                    && args.is(at, "BYBOX")
                    && left >= 3
                    && !matches!(search.shape, Some(Shape::Circle(_))) =>
                {
                    search.rectangle(args, at + 1)?;
                    step = 4;
                }
                () => return Err(fault::SYNTAX),
            }
            at += step;
        }
        search.check(args, searches).map(|()| search)
    }

    fn member(&mut self, zset: Option<&Zset>, member: &[u8]) -> Result<(), Fault> {
        self.center_is_missing = zset.is_none();
        if let Some(zset) = zset {
            let score = zset.score(member).ok_or(Fault::new("ERR could not decode requested zset member"))?;
            self.center = Some(place(score));
        }
        Ok(())
    }

    fn circle(&mut self, args: &Args, at: usize) -> Result<(), Fault> {
        let radius = parse::float_or(&args[at], Fault::new("ERR need numeric radius"))?;
        if radius < 0.0 {
            return Err(Fault::new("ERR radius cannot be negative"));
        }
        self.metres = unit(&args[at + 1])?;
        self.shape = Some(Shape::Circle(radius * self.metres));
        Ok(())
    }

    fn rectangle(&mut self, args: &Args, at: usize) -> Result<(), Fault> {
        let width = parse::float_or(&args[at], Fault::new("ERR need numeric width"))?;
        let height = parse::float_or(&args[at + 1], Fault::new("ERR need numeric height"))?;
        if width < 0.0 || height < 0.0 {
            return Err(Fault::new("ERR height or width cannot be negative"));
        }
        self.metres = unit(&args[at + 2])?;
        self.shape = Some(Shape::Box(width * self.metres, height * self.metres));
        Ok(())
    }

    fn check(&self, args: &Args, searches: bool) -> Result<(), Fault> {
        let name = String::from_utf8_lossy(&args[0]);
        if self.store.is_some() && self.with != (false, false, false) {
            let what = if searches { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            let text = format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
            return Err(Fault::made(text));
        }
        if searches && self.center.is_none() && !self.center_is_missing {
            let text = format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}");
            return Err(Fault::made(text));
        }
        if searches && self.shape.is_none() {
            return Err(Fault::made(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {name}")));
        }
        if self.any && self.count == 0 {
            return Err(Fault::new("ERR the ANY argument requires COUNT argument"));
        }
        Ok(())
    }

    /// Returns the distance of a position from the centre. Returns `None` if the position is outside the shape.
    fn within(&self, place: Coordinates) -> Option<f64> {
        let center = self.center?;
        match self.shape? {
            Shape::Circle(radius) => Some(distance(center, place)).filter(|distance| *distance <= radius),
            Shape::Box(width, height) => {
                let north = north_distance(place.1, center.1) <= height / 2.0;
                let east = distance(place, (center.0, place.1)) <= width / 2.0;
                (north && east).then(|| distance(center, place))
            }
        }
    }

    fn run(&self, zset: &Zset) -> Vec<Found> {
        let all = zset.range(0, usize::MAX).into_iter().filter_map(|(member, score)| {
            let place = place(score);
            self.within(place).map(|distance| Found { member: member.to_vec(), score, place, distance })
        });
        let most = if self.count == 0 { usize::MAX } else { self.count };
        let mut all: Vec<Found> = if self.any { all.take(most).collect() } else { all.collect() };
        let order = self.descending.or((self.count > 0 && !self.any).then_some(false));
        if let Some(descending) = order {
            all.sort_by(|one, other| {
                let order = one.distance.total_cmp(&other.distance);
                if descending { order.reverse() } else { order }
            });
        }
        all.truncate(most);
        all.iter_mut().for_each(|found| found.distance /= self.metres);
        all
    }

    fn row(&self, found: Found) -> Reply {
        let mut row = vec![Reply::Bulk(found.member)];
        row.extend(self.with.0.then(|| digits(found.distance)));
        row.extend(self.with.1.then_some(Reply::Int(found.score as i64)));
        row.extend(self.with.2.then(|| coordinates(found.place)));
        if row.len() == 1 { row.remove(0) } else { Reply::Array(row) }
    }
}

fn told(view: &View<'_>, args: &Args, form: Form) -> Answer {
    let zset = view.get::<Zset>(&args[1])?;
    let search = Search::parse(args, form, zset)?;
    let found = zset.map(|zset| search.run(zset)).unwrap_or_default();
    Ok(Reply::Array(found.into_iter().map(|found| search.row(found)).collect()))
}

fn stored(change: &mut Change<'_>, args: &Args, form: Form) -> Answer {
    let view = change.view();
    let zset = view.get::<Zset>(&args[if form == Form::SearchStore { 2 } else { 1 }])?;
    let search = Search::parse(args, form, zset)?;
    let found = zset.map(|zset| search.run(zset)).unwrap_or_default();
    let Some(key) = search.store else {
        return Ok(Reply::Array(found.into_iter().map(|found| search.row(found)).collect()));
    };
    let (mut zset, hashing) = (Zset::default(), change.db.hashing);
    for found in &found {
        let score = if search.store_distance { found.distance } else { found.score };
        zset.set(&found.member, score, hashing);
    }
    let event = if form == Form::SearchStore { "geosearchstore" } else { "georadiusstore" };
    change.store(key, zset, b'z', event);
    Ok(Reply::count(found.len()))
}
