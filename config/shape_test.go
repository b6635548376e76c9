package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"recibo/setting"
)

// house is a configuration with one key of every kind.
type house struct {
	Door    door    `yaml:"door" doc:"who may come in"`
	Kitchen kitchen `yaml:"kitchen" doc:"work"`
	Garden  *garden `yaml:"garden" doc:"off unless named"`
	Remark  string  // without a tag: no key
	Helper  func()  `yaml:"-"`
}

type door struct {
	URL      string           `yaml:"url" doc:"address"`
	Token    setting.Secret   `yaml:"token" doc:"bearer token"`
	Secrets  []setting.Secret `yaml:"secrets" doc:"any of them opens"`
	Keys     []doorKey        `yaml:"keys" doc:"signing keys"`
	Subjects []string         `yaml:"subjects" doc:"what is taken"`
	TLS      setting.TLS      `yaml:"tls" doc:"certificates"`
	From     []netip.Prefix   `yaml:"from" doc:"networks"`
}

type doorKey struct {
	ID     string         `yaml:"id" doc:"name"`
	Secret setting.Secret `yaml:"secret" doc:"value"`
	Weight int            `yaml:"weight" doc:"how much it counts"`
}

type kitchen struct {
	Cooks   int           `yaml:"cooks" doc:"at a time" min:"1" max:"64"`
	Every   time.Duration `yaml:"poll_every" doc:"pause" max:"400d"`
	Pot     setting.Size  `yaml:"pot" doc:"largest" min:"1KiB"`
	Backoff setting.Range `yaml:"backoff" doc:"waits"`
	StartAt time.Time     `yaml:"start_at" doc:"from when on"`
	Mode    string        `yaml:"mode" doc:"octal mode"`
	Open    bool          `yaml:"open" doc:"is it open"`
	Style   string        `yaml:"style" doc:"how" enum:"keep,replace"`
	Share   float64       `yaml:"share" doc:"of the whole" min:"0" max:"1"`
	Dir     string        `yaml:"dir" doc:"folder"`
	Limit   *int          `yaml:"limit" doc:"none unless set"`
	Port    uint16        `yaml:"port" doc:"port"`
}

func (k kitchen) Validate() error {
	var errs []error
	if k.Cooks == 13 {
		errs = append(errs, errors.New("cooks: 13 is unlucky"))
	}
	if k.Share == 0.5 {
		errs = append(errs, errors.New("kitchen.share: half is no share"), errors.New("nothing is left"))
	}
	return errors.Join(errs...)
}

type garden struct {
	Trees  int    `yaml:"trees" doc:"number"`
	Route  string `yaml:"path" doc:"no path of a file" path:"false"`
	Gnomes shed   `yaml:",inline"`
}

type shed struct {
	Password setting.Secret `yaml:"password" doc:"of the shed"`
	LogDir   string         `yaml:"log" doc:"a folder by its tag" path:"true"`
}

func (g *garden) Validate() error {
	if g.Trees == 99 {
		return fmt.Errorf("password: %s is too weak for so many trees", g.Gnomes.Password.Reveal())
	}
	return nil
}

func newHouse() house {
	return house{
		Door:    door{URL: "nats://127.0.0.1:4222", Subjects: []string{"report.finished", "report.partial"}},
		Kitchen: kitchen{Cooks: 4, Every: 5 * time.Minute, Pot: 64 << 20, Backoff: setting.Range{Min: time.Second, Max: 15 * time.Minute}, Mode: "0640", Open: true, Style: "keep", Share: 0.25, Dir: "./data"},
	}
}

func houseModel() *model {
	return newModel(house{}, map[string]any{
		"garden":    func() garden { return garden{Trees: 3, Route: "/events"} },
		"door.keys": func() doorKey { return doorKey{Weight: 1} },
	})
}

// loadHouse reads text as house.yaml in a folder of the test's own, with files beside it.
func loadHouse(t *testing.T, text string, files map[string]string, environ ...string) (house, map[string]Origin, []string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := newHouse()
	src := source{file: "house.yaml", dir: dir, data: []byte(text), env: newEnvironment(environ)}
	origins, warnings, err := houseModel().load(src, &h)
	if err != nil {
		err = errors.New(strings.ReplaceAll(err.Error(), dir, "DIR"))
	}
	h.Kitchen.Dir = strings.Replace(h.Kitchen.Dir, dir, "DIR", 1)
	return h, origins, warnings, err
}
