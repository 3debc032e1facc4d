//! A cache of rendered pages. The key has two parts, site and path, so that all pages of one site lie side by side: when a
//! site changes, a scan finds them and drops them, and touches no page of another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use archipelago::HydraList;

#[derive(Default)]
struct Cache {
    pages: HydraList<(String, String), Arc<str>>,
    rendered: AtomicUsize,
}

impl Cache {
    /// The page, rendered if it is not here. Two threads that miss at once both render, and one page stays.
    fn get(&self, site: &str, path: &str) -> Arc<str> {
        let render = || {
            self.rendered.fetch_add(1, Ordering::Relaxed);
            Arc::from(format!("<h1>{site}{path}</h1>"))
        };
        self.pages.pin().get_or_insert_with((site.to_owned(), path.to_owned()), render).clone()
    }

    /// Drops all pages of a site; how many. A page that is rendered meanwhile may stay.
    fn invalidate(&self, site: &str) -> usize {
        let pages = self.pages.pin();
        let from = (site.to_owned(), String::new());
        let of_site = pages.range(from..).map(|(key, _)| key).take_while(|(of, _)| of == site);
        of_site.filter(|key| pages.remove(key).is_some()).count()
    }
}

fn main() {
    const PATHS: usize = 1_000;
    let cache = Cache::default();
    let visit = |site: &str| (0..PATHS).for_each(|page| _ = cache.get(site, &format!("/page/{page}")));
    let sites = ["a.example", "b.example", "c.example"];
    thread::scope(|scope| sites.iter().for_each(|site| _ = scope.spawn(move || visit(site))));
    sites.iter().for_each(|site| visit(site));
    let rendered = cache.rendered.load(Ordering::Relaxed);
    assert_eq!(rendered, 3 * PATHS, "the second visit of each site finds its pages");

    assert_eq!(cache.invalidate("b.example"), PATHS);
    assert_eq!(cache.pages.len(), 2 * PATHS);
    println!("{rendered} pages rendered, {} left when one of three sites had changed", cache.pages.len());
}

#[test]
fn it_runs() {
    main();
}
