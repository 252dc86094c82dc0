//! What an operator has done with sites.

use std::rc::Rc;
use std::time::Duration;

use stoa_core::{LevelRefusal, SITE_MAX, SITES_PATH, SiteId, SiteSet, is_torn_from};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Sites;
use super::list::{self, Site};
use crate::config::SiteAddresses;
use crate::driver::Driver;
use crate::view::SiteOrder;

/// Who is to become the hub waits no longer for the others to say what they have.
const SAY_PATIENCE: Duration = Duration::from_secs(2);

/// What the answer is sent to: whether it is begun, or why not.
type Reply = oneshot::Sender<Result<(), String>>;

impl Sites {
    /// Begins what is ordered.
    pub(crate) fn take_order(self: &Rc<Self>, order: SiteOrder, driver: &Driver, reply: Reply) {
        let another = self.driver.get().and_then(std::rc::Weak::upgrade);
        let (SiteOrder::Promote(lost), Some(another)) = (&order, another) else {
            let _ = reply.send(self.order(&order, driver));
            return;
        };
        let (sites, lost) = (Rc::clone(self), lost.clone());
        tokio::task::spawn_local(async move {
            let can_tell = sites.look_for_torn(&lost, &another).await;
            let _ = reply.send(can_tell.and_then(|()| sites.order(&order, &another)));
        });
    }

    /// Asks all sites that are to follow this one as the hub what they have. One that does not answer is waited for later,
    /// when this one has claimed to be the hub.
    ///
    /// # Errors
    /// When one of them lacks something that this one has and cannot tell it, or the other way round: then it could not
    /// follow, and there would be no hub.
    async fn look_for_torn(self: &Rc<Self>, lost: &[String], driver: &Rc<Driver>) -> Result<(), String> {
        let others = self.list(driver).into_iter().map(|site| (site.number, site.addresses.name));
        let others = others.filter(|(_, name)| *name != self.own && !lost.contains(name));
        let asked: Vec<_> = others
            .map(|(site, name)| {
                let (sites, driver) = (Rc::clone(self), Rc::clone(driver));
                let look = async move { timeout(SAY_PATIENCE, sites.look_at(site, &driver)).await };
                (site, name, tokio::task::spawn_local(look))
            })
            .collect();
        for (site, name, told) in asked {
            let Ok(Ok(Some(reach))) = told.await else { continue };
            if is_torn_from(&driver.server.borrow(), site, &reach) {
                return Err(format!(
                    "{name} and {0} could not tell each other what one of them lacks, as their logs do not reach back so \
                     far (one has joined a moment before, or was away): wait until both have what the hub has (stoa sites \
                     shows it), and try again; if the hub is lost, promote the one of the two that has more, and give up the \
                     other one with the hub (--lose): it joins anew",
                    self.own
                ));
            }
        }
        Ok(())
    }

    /// # Errors
    /// Why that is not begun, for the operator.
    fn order(&self, order: &SiteOrder, driver: &Driver) -> Result<(), String> {
        let sites = self.list(driver);
        let now = driver.now();
        let begun = match order {
            SiteOrder::Lose(name) => {
                let site = number(&sites, name)?;
                let lost = driver.server.borrow_mut().lose_site(site, now).map_err(|why| why.to_string());
                if let (Ok(()), Some(link)) = (&lost, self.links.borrow().get(&site)) {
                    // It is told when it comes again.
                    link.end();
                }
                lost
            }
            SiteOrder::Promote(lost) => {
                let lost: Vec<SiteId> =
                    lost.iter().map(|name| number(&sites, name)).collect::<Result<_, _>>()?;
                let set = |all: &mut dyn Iterator<Item = SiteId>| all.fold(SiteSet::default(), SiteSet::with);
                let others = sites.iter().filter(|site| site.addresses.name != self.own);
                let needed = set(&mut others.map(|site| site.number));
                let lost = set(&mut lost.into_iter());
                let claimed = driver.server.borrow_mut().claim_reign(lost, needed, now);
                if let Ok(claim) = claimed {
                    self.to_look_at.set(claim.needed);
                }
                claimed.map(|_| ()).map_err(|why| why.to_string())
            }
            SiteOrder::Rejoin => self.rejoin(driver),
            SiteOrder::Upgrade => self.raise_level(driver),
            SiteOrder::Add(_) if !driver.server.borrow().may_add_site() => Err(
                "sites come one at a time, 20 s apart, where another one can take the hub's place (setting site-automatic-promotion): try it again"
                    .to_owned(),
            ),
            SiteOrder::Add(text) => added(sites, text, driver).and_then(|sites| self.write(&sites, driver)),
            SiteOrder::Remove(name) => {
                let site = number(&sites, name)?;
                may_be_removed(site, driver)?;
                let left: Vec<Site> = sites.into_iter().filter(|other| other.number != site).collect();
                self.write(&left, driver)
            }
        };
        driver.after_input();
        if begun.is_ok() {
            tracing::info!("by order: {order}");
        }
        begun
    }

    fn rejoin(&self, driver: &Driver) -> Result<(), String> {
        driver.server.borrow_mut().discard_site(driver.now()).map_err(|_| {
            "this site was not given up by the others, or this server does not lead it: nothing is discarded".to_owned()
        })?;
        // A connection on which the hub has given the state already, when it was not to be taken, is of no use.
        self.end_links();
        Ok(())
    }

    /// Has the sites use the highest feature level that all of them read.
    fn raise_level(&self, driver: &Driver) -> Result<(), String> {
        let raised = driver.server.borrow_mut().raise_level(driver.now());
        let level = raised.map_err(|why| match why {
            LevelRefusal::HeldBack(by) => {
                let name = |site: SiteId| self.names(SiteSet::of(site), driver).concat();
                format!(
                    "not every server of every site reads a higher feature level than the one in use: {}. Give all servers \
                     the new release, and wait until they are connected",
                    by.named(name).join("; ")
                )
            }
            why => why.to_string(),
        })?;
        tracing::info!("the sites use feature level {level} from now on");
        Ok(())
    }

    /// Writes which sites there are; what else the list says stays.
    pub(super) fn write(&self, sites: &[Site], driver: &Driver) -> Result<(), String> {
        let now = driver.now();
        let mut server = driver.server.borrow_mut();
        let before = server.tree().get(SITES_PATH).and_then(|znode| znode.data().map(<[u8]>::to_vec));
        let text = list::replace(&String::from_utf8_lossy(&before.unwrap_or_default()), sites);
        server.write_sites(&text, now).map_err(|why| why.to_string())
    }

    /// The names of some sites.
    pub(super) fn names(&self, of: SiteSet, driver: &Driver) -> Vec<String> {
        let sites = self.list(driver);
        let name = |number: SiteId| {
            let known = sites.iter().find(|site| site.number == number);
            known.map_or_else(|| format!("site {number}"), |site| site.addresses.name.clone())
        };
        of.iter().map(name).collect()
    }
}

fn number(sites: &[Site], name: &str) -> Result<SiteId, String> {
    let known = sites.iter().find(|site| site.addresses.name == name);
    let names = || sites.iter().map(|site| site.addresses.name.as_str()).collect::<Vec<_>>().join(", ");
    known
        .map(|site| site.number)
        .ok_or_else(|| format!("{} is none of the sites, which are: {}", name.escape_debug(), names()))
}

/// A number is a site's for ever, also of one that is in no list any more.
fn added(mut sites: Vec<Site>, text: &str, driver: &Driver) -> Result<Vec<Site>, String> {
    let addresses = SiteAddresses::parse(text)
        .ok_or_else(|| format!("{} has not the form NAME=HOST:PORT|HOST:PORT", text.escape_debug()))?;
    if sites.iter().any(|site| site.addresses.name == addresses.name) {
        return Err(format!("{} is one of the sites already", addresses.name));
    }
    let server = driver.server.borrow();
    let known = server.tree().known_sites().chain(sites.iter().map(|site| site.number)).max();
    let number = known.unwrap_or(0) + 1;
    if number > SITE_MAX {
        return Err(format!("there have been {SITE_MAX} sites, and there cannot be more"));
    }
    sites.push(Site { number, is_hub: false, addresses });
    Ok(sites)
}

fn may_be_removed(site: SiteId, driver: &Driver) -> Result<(), String> {
    let server = driver.server.borrow();
    let tree = server.tree();
    let has_come = tree.own_site() == Some(site) || tree.known_sites().any(|known| known == site);
    if has_come && !tree.is_lost(site) {
        return Err("it is one of the sites: have it given up first (stoa sites lose)".to_owned());
    }
    Ok(())
}
