//! What of another site's entry each partition of this one takes in.

use crate::entry::{Items, Outcome, put_item_of};
use crate::sites::update_in;
use alloc::vec::Vec;
use stoa_tree::{CorruptUpdate, Places, SiteId, Update, site_of_zxid};

/// So many low bits of the number of a request say which partition has given it, where a site has several.
const NUMBER_BITS: u32 = 6;

/// The next number that a partition gives a request, which is none below another one.
#[must_use]
pub fn next_number(least: u64, (own, partitions): (u8, u8)) -> u64 {
    if partitions <= 1 {
        return least;
    }
    let step = 1 << NUMBER_BITS;
    let number = least & !(step - 1) | u64::from(own);
    if number < least { number + step } else { number }
}

/// The partition that has numbered a request.
#[must_use]
pub fn partition_of_number(number: u64, partitions: u8) -> u8 {
    if partitions > 1 { (number & ((1 << NUMBER_BITS) - 1)) as u8 } else { 0 }
}

/// What a partition takes in of what another site has at a position.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ImportShare {
    /// Sessions that get something there, and where they are at home then.
    pub owners: Vec<(i64, SiteId)>,
    /// Items.
    pub items: Vec<u8>,
}

/// Divides what another site has at a position among the partitions of `own` but the first one, which has all of it.
/// `home` says where a session is at home; it is told, with a site, when that becomes another one. Nothing follows from
/// an update that is no news.
///
/// # Errors
/// When it is damaged.
pub fn divide_import(
    items: &[u8],
    own: SiteId,
    places: &Places<'_>,
    is_news: &dyn Fn(&Update<'_>) -> bool,
    home: &mut dyn FnMut(i64, Option<SiteId>) -> SiteId,
) -> Result<Vec<ImportShare>, CorruptUpdate> {
    let mut shares: Vec<ImportShare> = (0..places.partitions).map(|_| ImportShare::default()).collect();
    let mut items = Items::imported(items);
    loop {
        let before = items.rest();
        let Some(item) = items.next() else { break };
        let item = item?;
        let bytes = &before[..before.len() - items.rest().len()];
        let mut concerned = 0;
        if let Some(origin) = item.origin.filter(|origin| origin.site == own)
            && !matches!(item.outcome, Outcome::Site(_))
        {
            concerned |= 1 << partition_of_number(origin.request, places.partitions);
        }
        if let Some(update) = update_in(&item) {
            concerned |= update.concerns(places)?;
            if let Some(to) = update.home_behind(site_of_zxid(update.zxid)).filter(|_| is_news(&update)) {
                home(update.session, Some(to));
            }
            update.for_each_owner(places, |session, partitions| {
                for (partition, share) in (0..).zip(&mut shares) {
                    if partition > 0 && partitions & 1_u64 << partition != 0 {
                        share.owners.push((session, home(session, None)));
                    }
                }
            });
        }
        for (partition, share) in (0_u8..).zip(&mut shares).skip(1) {
            if concerned & 1 << partition != 0 {
                put_item_of(&mut share.items, item.origin, bytes);
            }
        }
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_say_who_has_given_them() {
        assert_eq!(next_number(7, (0, 1)), 7);
        for (least, own, number) in [(0, 0, 0), (1, 0, 64), (0, 3, 3), (4, 3, 67), (67, 3, 67), (68, 3, 131)]
        {
            assert_eq!(next_number(least, (own, 4)), number);
            assert_eq!(partition_of_number(number, 4), own);
        }
    }
}
