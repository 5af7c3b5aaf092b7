// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-storage/weir/api/v1alpha1"
)

// offersPage is what the page of that name shows.
type offersPage struct {
	Offers  paged[offerLine]
	Q       string
	Amount  string
	Kind    v1alpha1.RoomKind
	Ours    bool
	MayLend bool
}

// offerLine is an offer.
type offerLine struct {
	v1alpha1.StorageOffer
	Reason, Message string
	// Own: it was made in this cluster.
	Own bool
}

func lineOf(o v1alpha1.StorageOffer) offerLine {
	r := ready(o.Status.Conditions)
	return offerLine{o, r.Reason, r.Message, o.Annotations[v1alpha1.MirrorAnnotation] == ""}
}

// offers reads all, each with what lists show.
func (v *visit) offers() (all []offerLine, forbidden string, err error) {
	rows, forbidden, err := v.rows("storageoffers", "Host", "Site", "Kind", "Amount", "Free", "Reason", "Price", "Terms", "Media", "Class")
	for _, r := range rows {
		l := offerLine{Reason: r["Reason"], StorageOffer: v1alpha1.StorageOffer{
			Spec: v1alpha1.StorageOfferSpec{Kind: v1alpha1.RoomKind(r["Kind"]), Price: r["Price"], Terms: r["Terms"], Media: r["Media"],
				Class: v1alpha1.RoomClass(r["Class"])},
			Status: v1alpha1.StorageOfferStatus{Host: r["Host"], Site: r["Site"], Free: r.amount("Free")}}}
		if q := r.amount("Amount"); q != nil {
			l.Spec.Amount = *q
		}
		l.Name = r["Name"]
		all = append(all, l)
	}
	return all, forbidden, err
}

// offers shows what organizations lend.
func offers(v *visit) error {
	all, forbidden, err := v.offers()
	if err != nil {
		return err
	}
	q := v.URL.Query()
	p := offersPage{Q: q.Get("q"), Amount: q.Get("amount"), Ours: q.Get("whose") == "ours", MayLend: v.may("create", "storageoffers")}
	least := resource.Quantity{}
	if p.Amount != "" {
		if least, err = amount("amount", p.Amount); err != nil {
			return err
		}
	}
	if p.Kind, err = chosen(q.Get("kind")); err != nil {
		return err
	}
	us := v.home().Organization
	var lines []offerLine
	for _, o := range all {
		ours := o.Status.Host == us
		free := resource.Quantity{}
		if o.Status.Free != nil {
			free = *o.Status.Free
		}
		if ours == p.Ours && free.Cmp(least) >= 0 && (p.Kind == "" || o.Spec.Kind == p.Kind) &&
			matches(p.Q, o.Name, o.Status.Host, o.Status.Site, o.Spec.Media, string(o.Spec.Class), o.Spec.Price, o.Spec.Terms) {
			lines = append(lines, o)
		}
	}
	p.Offers = page(lines, q, forbidden)
	return v.show("offers", "Offers", p, 0)
}

// offerPage is what the page of that name shows.
type offerPage struct {
	offerLine
	MayAsk, MayWithdraw bool
	// Until is what a form begins with. Read is what was read when it was filled in, and Key names
	// the request: who sends the form twice asks once.
	Until, Read, Key string
}

// terms are what an offer says, in short: another price, term or notice gives other words, and so
// does an offer of another kind, made anew under the same name.
func terms(o v1alpha1.StorageOffer) string {
	s := o.Spec
	text, err := json.Marshal([]any{s.Kind, s.Price, s.Terms, s.Notice, s.Grace, s.Media, s.Class})
	if err != nil {
		panic(err) // strings and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// keyForm is how a form's key looks.
var keyForm = regexp.MustCompile(`^[0-9a-f]{12}$`)

// offer shows one, with a form to ask for it.
func offer(v *visit) error {
	var o v1alpha1.StorageOffer
	if err := v.s.api.Get(v.Context(), client.ObjectKey{Name: v.PathValue("name")}, &o); err != nil {
		return err
	}
	until := v.c.cfg.Now().AddDate(1, 0, 0)
	if o.Spec.Until != nil && o.Spec.Until.Time.Before(until) {
		until = o.Spec.Until.AddDate(0, 0, -1)
	}
	key := make([]byte, 6)
	if _, err := io.ReadFull(v.c.cfg.Random, key); err != nil {
		return err
	}
	p := offerPage{offerLine: lineOf(o), Until: until.UTC().Format("2006-01-02"), Read: terms(o), Key: hex.EncodeToString(key)}
	p.MayAsk = o.Status.ForUs && !o.Spec.Closed && v.may("create", "storagerequests")
	p.MayWithdraw = p.Own && v.may("delete", "storageoffers")
	return v.show("offer", "Offer "+o.Name, p, 0)
}

// ask asks for an offer, by the terms that were shown.
func ask(v *visit) error {
	want, err := amount("Amount", v.FormValue("amount"))
	if err != nil {
		return err
	}
	until, err := date("Until", v.FormValue("until"))
	if err != nil {
		return err
	}
	var o v1alpha1.StorageOffer
	if err := v.s.api.Get(v.Context(), client.ObjectKey{Name: v.PathValue("name")}, &o); err != nil {
		return err
	}
	key := v.FormValue("key")
	if !keyForm.MatchString(key) {
		return wrong("key: %q: open the offer's page, and use its form.", key)
	}
	if v.FormValue("read") != terms(o) {
		return wrong("The offer was changed since you read it: read it again, and ask then.")
	}
	r := &v1alpha1.StorageRequest{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(o.Name, ".", "-") + "-" + key},
		Spec: v1alpha1.StorageRequestSpec{Offer: o.Name, Amount: want, Until: metav1.Time{Time: until}, Purpose: v.FormValue("purpose"),
			Price: &o.Spec.Price}}
	err = v.s.api.Create(v.Context(), r)
	if apierrors.IsAlreadyExists(err) { // the form was sent twice
		err = v.s.api.Get(v.Context(), client.ObjectKeyFromObject(r), r)
	}
	if err != nil {
		return err
	}
	return v.to("/agreements/" + string(r.UID))
}

// lend shows the form of an offer.
func lend(v *visit) error { return v.show("lend", "Lend storage", v.may("create", "storageoffers"), 0) }

// makeOffer makes an offer of this site.
func makeOffer(v *visit) error {
	in := func(field string) string { return strings.TrimSpace(v.FormValue(field)) }
	all, err := amount("Amount", in("amount"))
	if err != nil {
		return err
	}
	kind, err := chosen(cmp.Or(in("kind"), string(v1alpha1.RoomStore)))
	if err != nil {
		return err
	}
	o := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: in("name")}, Spec: v1alpha1.StorageOfferSpec{Kind: kind,
		Amount: all, Media: in("media"), Class: v1alpha1.RoomClass(in("class")), Price: in("price"), Terms: in("terms")}}
	if o.Name == "" {
		return wrong("Name: missing: give the offer a name, such as disks.")
	}
	if text := in("automatic"); text != "" {
		n, err := amount("Accepted by itself", text)
		if err != nil {
			return err
		}
		o.Spec.Automatic = &n
	}
	for _, f := range []struct {
		name, label string
		to          *metav1.Duration
	}{{"notice", "Notice", &o.Spec.Notice}, {"grace", "Grace", &o.Spec.Grace}} {
		n, err := strconv.Atoi(in(f.name))
		if err != nil || n < 0 || n > 1825 {
			return wrong("%s: %q: write a number of days, such as 30.", f.label, in(f.name))
		}
		f.to.Duration = time.Duration(n) * 24 * time.Hour
	}
	if err := v.s.api.Create(v.Context(), o); err != nil {
		return err
	}
	return v.to("/offers/" + o.Name)
}

// withdraw takes an offer back.
func withdraw(v *visit) error {
	o := &v1alpha1.StorageOffer{ObjectMeta: metav1.ObjectMeta{Name: v.PathValue("name")}}
	if err := v.s.api.Get(v.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	if o.Annotations[v1alpha1.MirrorAnnotation] != "" {
		return &failed{http.StatusForbidden, "The offer was not made in this cluster: withdraw it where it was."}
	}
	if err := v.s.api.Delete(v.Context(), o); err != nil {
		return err
	}
	return v.to("/offers?whose=ours")
}

// amount reads an amount of a form.
func amount(field, text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(text), "B"), " ", ""))
	if err != nil || q.Sign() <= 0 {
		return q, wrong("%s: %q: write an amount, such as 10Ti or 500Gi.", field, text)
	}
	return q, nil
}

// date reads a day of a form: its end.
func date(field, text string) (time.Time, error) {
	t, err := time.Parse("2006-01-02", strings.TrimSpace(text))
	if err != nil {
		return t, wrong("%s: %q: write a day, such as 2027-12-31.", field, text)
	}
	return t.Add(24*time.Hour - time.Second), nil
}

// Left tells how much of it is left.
func (o offerLine) Left() string {
	return fmt.Sprintf("%s of %s", bytesText(o.Status.Free), bytesText(o.Spec.Amount))
}
