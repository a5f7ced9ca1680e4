package frameworks

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/fiberlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

var onFiber = framework{
	name:  "fiber",
	spell: colons,
	own:   map[string]string{"an encoded path": "routes by the encoded path, so it finds no route"},
	listen: func(s *service, l net.Listener) (stop func(), err error) {
		app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
			if errors.Is(err, http.ErrNoCookie) {
				return fiberText("wrong password", http.StatusUnauthorized)(c)
			}
			status := http.StatusInternalServerError
			if coded := (*fiber.Error)(nil); errors.As(err, &coded) {
				status = coded.Code
			}
			c.Status(status)
			return nil
		}})
		m, err := fiberlimit.New(s.limiter, s.fiberConfig())
		if err != nil {
			return nil, err
		}
		app.Use(func(c fiber.Ctx) (err error) { // the recovery, outside of the limit
			defer func() {
				if recover() != nil {
					err = fiber.ErrInternalServerError
				}
			}()
			return c.Next()
		}, m.Handler)
		fiberRoutes(s, m, app)
		go func() { _ = app.Listener(l, fiber.ListenConfig{DisableStartupMessage: true}) }()
		return func() {
			s.client.CloseIdleConnections()
			_ = app.ShutdownWithTimeout(time.Second) // Fiber would wait for a connection that the client has made and not used
		}, nil
	},
}

func (s *service) fiberConfig() fiberlimit.Config {
	o := &s.options
	c := fiberlimit.Config{
		Proxies: o.proxies, Info: o.info, Headers: o.headers, SkipNetworks: o.skipNetworks, ShowShared: o.shared, Log: o.log,
	}
	if o.users {
		c.Client = func(c fiber.Ctx) (client, tier string, ok bool) {
			return user(func(name string) string { return c.Get(name) })
		}
	}
	if o.key {
		c.Client = fiberlimit.APIKey("X-API-Key", find)
	}
	if o.count != nil {
		c.Count = func(_ fiber.Ctx, status int) bool { return o.count(status) }
	}
	if o.healthy {
		c.Skip = fiberlimit.SkipPaths("/healthz")
	}
	if o.preflight {
		c.Skip = fiberlimit.Preflight
	}
	if o.pattern {
		c.Endpoint = fiberlimit.Pattern()
	}
	if o.prepares() {
		c.Prepare = func(_ fiber.Ctx, q *ratelimit.Request) { o.prepare(q) }
	}
	if o.forgive {
		c.Error = func(fiber.Ctx, error) bool { return true }
	}
	if o.denied {
		c.Denied = func(c fiber.Ctx, _ *httplimit.Info) error { return fiberText("slow down", 420)(c) }
	}
	if o.blocked {
		c.Blocked = func(c fiber.Ctx, _ *httplimit.Info) error { return fiberText("go away", http.StatusForbidden)(c) }
	}
	return c
}

func fiberText(body string, status int) fiber.Handler {
	return func(c fiber.Ctx) error {
		c.Set("Content-Type", "text/plain")
		return c.Status(status).SendString(body)
	}
}

func fiberRoutes(s *service, m *fiberlimit.Middleware, app *fiber.App) {
	app.Get("/items/:id", func(c fiber.Ctx) error { return fiberText("item "+c.Params("id"), http.StatusOK)(c) })
	app.Post("/login", func(c fiber.Ctx) error {
		switch c.Get("X-Password") {
		case "right":
			return fiberText("welcome", http.StatusOK)(c)
		case "wrong":
			return fiberText("wrong password", http.StatusUnauthorized)(c)
		}
		return http.ErrNoCookie
	})
	app.Get("/panic", func(fiber.Ctx) error { panic("a bug") })
	app.Get("/stream", func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString("one\n")
			_ = w.Flush()
			<-s.release
			_, _ = w.WriteString("two\n")
		})
	})
	app.Get("/slow", func(c fiber.Ctx) error {
		s.running <- struct{}{}
		<-s.release
		return fiberText("done", http.StatusOK)(c)
	})
	app.Get("/empty", func(fiber.Ctx) error { return nil })
	app.Get("/info", func(c fiber.Ctx) error { return fiberText(infoText(fiberlimit.Info(c)), http.StatusOK)(c) })
	app.Get("/mail", func(c fiber.Ctx) error {
		if ok, err := m.Allow(c, mail); !ok {
			return err
		}
		return fiberText("sent", http.StatusOK)(c)
	})
	app.Get("/job", func(c fiber.Ctx) error {
		units, ok, err := m.Reserve(c, job, time.Minute)
		if !ok {
			return err
		}
		_ = units.Settle(1)
		return fiberText("worked", http.StatusOK)(c)
	})
	app.Get("/healthz", fiberText("healthy", http.StatusOK))
	app.Get("/twice", m.Handler, fiberText("twice", http.StatusOK))
}
