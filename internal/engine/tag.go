package engine

// A tag says at which plans (rates) the state of a key was written, and where the receipts of the key are. It has three
// parts, so that it needs only eight bytes of each key:
//
//   - the id of the plan at which the state was last written; 0 if the state was never written
//   - the id of the slowest plan at which the key was charged since it last counted as new; 0 if this is the
//     same plan as in the first part
//   - the index of the key's chain (the list of its receipts); 0 if the key has no receipts
//
// A decision takes a faster path if the tag equals the id of the request's plan. The last two parts of the tag are then
// 0, and stay 0.
type tag uint64

// Numbers of bits of the parts of a tag. A rule has at most maxIDs plans at a time, and its keys have at most maxChains
// lists of receipts. NewKeys allows only half as many receipts with a term (a time limit). The other half is left for
// receipts without a term, which a decision by several rules needs until it ends.
const (
	idBits    = 18
	chainBits = 64 - 2*idBits

	maxIDs    = 1<<idBits - 1
	maxChains = 1<<chainBits - 1
)

func (t tag) plan() tag     { return t & maxIDs }
func (t tag) slow() tag     { return t >> idBits & maxIDs }
func (t tag) chain() uint32 { return uint32(t >> (2 * idBits)) }

// withPlan returns the tag t with another first part: the plan with this id is now the one at which the state was last written.
func (t tag) withPlan(id tag) tag { return t&^maxIDs | id }

// withPlans returns the tag t with another first and another second part. The parameter id is the id of the plan at which
// the state was last written. The parameter slow is the id of the slowest plan; if it equals id, the second part is 0.
func (t tag) withPlans(id, slow tag) tag {
	if slow == id {
		slow = 0
	}
	return t.withoutPlans() | slow<<idBits | id
}

// withChain returns the tag t with the chain of the given index.
func (t tag) withChain(index uint32) tag { return t.withoutChain() | tag(index)<<(2*idBits) }

func (t tag) withoutPlans() tag { return t >> (2 * idBits) << (2 * idBits) }
func (t tag) withoutChain() tag { return t & (1<<(2*idBits) - 1) }
