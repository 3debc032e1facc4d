//! The rows of the nine tables. Each field's comment is the name of its column in the specification. Money is in cents,
//! and rates are in ten-thousandths.
//!
//! A row is copied when it is written, so its constant parts are behind an `Arc`. A primary key is one integer that
//! contains the parts of the key side by side, the first part in the highest bits.

use archipelago_platform::sync::Arc;
use archipelago_txn::on::Kind;
use serde::{Deserialize, Serialize};

use crate::record::{BySecond, Record, bytes, plain};

/// A name of at most sixteen bytes.
pub type Name = [u8; 16];

/// Returns a name's bytes, filled up with zeros.
pub fn name(text: &str) -> Name {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

/// Returns the primary key of a district.
pub fn district(w: u16, d: u8) -> u64 {
    u64::from(w) << 8 | u64::from(d)
}

/// Returns the primary key of a customer.
pub fn customer(w: u16, d: u8, c: u16) -> u64 {
    district(w, d) << 16 | u64::from(c)
}

/// Returns the primary key of an order or a new order.
pub fn order(w: u16, d: u8, o: u32) -> u64 {
    district(w, d) << 32 | u64::from(o)
}

/// Returns the primary key of an order line.
pub fn line(w: u16, d: u8, o: u32, number: u8) -> u64 {
    order(w, d, o) << 8 | u64::from(number)
}

/// Returns the primary key of an item in a warehouse's stock.
pub fn stock(w: u16, i: u32) -> u64 {
    u64::from(w) << 32 | u64::from(i)
}

/// Returns the key of an order in the index of orders by customer.
pub fn order_of(w: u16, d: u8, c: u16, o: u32) -> u64 {
    customer(w, d, c) << 24 | u64::from(o)
}

/// An address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    /// The name of a warehouse or a district.
    pub name: String,
    /// The street in two lines.
    pub street: [String; 2],
    /// The city.
    pub city: String,
    /// The state.
    pub state: String,
    /// The zip code.
    pub zip: String,
}

/// A row of WAREHOUSE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Warehouse {
    /// W_ID
    pub w: u16,
    /// W_TAX
    pub tax: i64,
    /// W_YTD
    pub ytd: i64,
    /// W_NAME and the address.
    pub place: Arc<Address>,
}
plain!(Warehouse: u16 = |row| row.w);

/// A row of DISTRICT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct District {
    /// D_W_ID
    pub w: u16,
    /// D_ID
    pub d: u8,
    /// D_TAX
    pub tax: i64,
    /// D_YTD
    pub ytd: i64,
    /// D_NEXT_O_ID
    pub next_o: u32,
    /// D_NAME and the address.
    pub place: Arc<Address>,
}
plain!(District: u64 = |row| district(row.w, row.d));

/// The constant columns of a customer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Person {
    /// C_FIRST
    pub first: Name,
    /// C_LAST
    pub last: Name,
    /// C_PHONE
    pub phone: String,
    /// The address.
    pub place: Address,
    /// C_SINCE
    pub since: u64,
    /// C_CREDIT_LIM
    pub credit_limit: i64,
}

/// A row of CUSTOMER.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Customer {
    /// C_W_ID
    pub w: u16,
    /// C_D_ID
    pub d: u8,
    /// C_ID
    pub c: u16,
    /// C_CREDIT: whether it is "BC" (bad credit).
    pub bad_credit: bool,
    /// C_DISCOUNT
    pub discount: i64,
    /// C_BALANCE
    pub balance: i64,
    /// C_YTD_PAYMENT
    pub ytd_payment: i64,
    /// C_PAYMENT_CNT
    pub payments: u32,
    /// C_DELIVERY_CNT
    pub deliveries: u32,
    /// C_DATA
    pub data: Arc<str>,
    /// The constant columns.
    pub person: Arc<Person>,
}

impl Record for Customer {
    type Key = u64;
    /// District, last name, and first name.
    type Second = (u32, Name, Name);
    type Indexes<M: Kind> = (BySecond<M, Self>,);
    const INDEXED: bool = true;
    fn key(&self) -> u64 {
        customer(self.w, self.d, self.c)
    }
    fn second(&self) -> Self::Second {
        (district(self.w, self.d) as u32, self.person.last, self.person.first)
    }
}

/// A row of HISTORY.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct History {
    /// The row's key: the terminal's number and the terminal's own count. The specification has no key.
    pub id: u64,
    /// The customer: H_C_W_ID, H_C_D_ID, H_C_ID.
    pub customer: u64,
    /// H_W_ID
    pub w: u16,
    /// H_D_ID
    pub d: u8,
    /// H_DATE
    pub date: u64,
    /// H_AMOUNT
    pub amount: i64,
    /// H_DATA
    pub data: [u8; 24],
}
plain!(History: u64 = |row| row.id);

/// NEW-ORDER.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NewOrder {
    /// NO_W_ID
    pub w: u16,
    /// NO_D_ID
    pub d: u8,
    /// NO_O_ID
    pub o: u32,
}
plain!(NewOrder: u64 = |row| order(row.w, row.d, row.o));

/// A row of ORDER.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// O_W_ID
    pub w: u16,
    /// O_D_ID
    pub d: u8,
    /// O_ID
    pub o: u32,
    /// O_C_ID
    pub c: u16,
    /// O_ENTRY_D
    pub entry: u64,
    /// O_CARRIER_ID
    pub carrier: Option<u8>,
    /// O_OL_CNT
    pub lines: u8,
    /// O_ALL_LOCAL
    pub all_local: bool,
}

impl Record for Order {
    type Key = u64;
    /// The customer's order; see [`order_of`].
    type Second = u64;
    type Indexes<M: Kind> = (BySecond<M, Self>,);
    const INDEXED: bool = true;
    const UNIQUE: bool = true;
    fn key(&self) -> u64 {
        order(self.w, self.d, self.o)
    }
    fn second(&self) -> u64 {
        order_of(self.w, self.d, self.c, self.o)
    }
}

/// A row of ORDER-LINE.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OrderLine {
    /// OL_W_ID
    pub w: u16,
    /// OL_D_ID
    pub d: u8,
    /// OL_O_ID
    pub o: u32,
    /// OL_NUMBER
    pub number: u8,
    /// OL_QUANTITY
    pub quantity: u8,
    /// OL_SUPPLY_W_ID
    pub supply_w: u16,
    /// OL_I_ID
    pub item: u32,
    /// OL_DELIVERY_D
    pub delivery: Option<u64>,
    /// OL_AMOUNT
    pub amount: i64,
    /// OL_DIST_INFO
    pub dist: [u8; 24],
}
plain!(OrderLine: u64 = |row| line(row.w, row.d, row.o, row.number));

/// A row of ITEM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Item {
    /// I_ID
    pub i: u32,
    /// I_IM_ID
    pub image: u32,
    /// I_NAME
    pub name: String,
    /// I_PRICE
    pub price: i64,
    /// I_DATA
    pub data: String,
}
plain!(Item: u32 = |row| row.i);

/// The constant columns of a stock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StockInfo {
    /// S_DIST_01 to S_DIST_10
    #[serde(with = "bytes")]
    pub dist: [[u8; 24]; 10],
    /// S_DATA
    pub data: String,
}

/// A row of STOCK.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stock {
    /// S_W_ID
    pub w: u16,
    /// S_I_ID
    pub i: u32,
    /// S_QUANTITY
    pub quantity: i32,
    /// S_YTD
    pub ytd: u32,
    /// S_ORDER_CNT
    pub orders: u32,
    /// S_REMOTE_CNT
    pub remote: u32,
    /// The constant columns.
    pub info: Arc<StockInfo>,
}
plain!(Stock: u64 = |row| stock(row.w, row.i));
