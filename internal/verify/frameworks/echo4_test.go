package frameworks

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/echolimit/echo4"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

var onEcho4 = framework{
	name:  "echo 4",
	spell: colons,
	own:   map[string]string{"an encoded path": "routes by the encoded path, so it finds no route"},
	build: func(s *service) (http.Handler, error) {
		m, err := echo4.New(s.limiter, s.echo4Config())
		if err != nil {
			return nil, err
		}
		e := echo.New()
		e.Logger.SetOutput(io.Discard)
		e.HTTPErrorHandler = func(err error, c echo.Context) {
			if errors.Is(err, http.ErrNoCookie) {
				_ = c.Blob(http.StatusUnauthorized, "text/plain", []byte("wrong password"))
				return
			}
			status := http.StatusInternalServerError
			if coded := (*echo.HTTPError)(nil); errors.As(err, &coded) {
				status = coded.Code
			}
			_ = c.NoContent(status)
		}
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc { // the recovery, outside of the limit
			return func(c echo.Context) (err error) {
				defer func() {
					if recover() != nil {
						err = echo.ErrInternalServerError
					}
				}()
				return next(c)
			}
		}, m.Handler)
		echo4Routes(s, m, e)
		return e, nil
	},
}

func (s *service) echo4Config() echo4.Config {
	o := &s.options
	c := echo4.Config{
		Proxies: o.proxies, Info: o.info, Headers: o.headers, SkipNetworks: o.skipNetworks, ShowShared: o.shared, Log: o.log,
	}
	if o.users {
		c.Client = func(c echo.Context) (client, tier string, ok bool) { return user(c.Request().Header.Get) }
	}
	if o.key {
		c.Client = echo4.APIKey("X-API-Key", find)
	}
	if o.count != nil {
		c.Count = func(_ echo.Context, status int) bool { return o.count(status) }
	}
	if o.healthy {
		c.Skip = echo4.SkipPaths("/healthz")
	}
	if o.preflight {
		c.Skip = echo4.Preflight
	}
	if o.pattern {
		c.Endpoint = echo4.Pattern
	}
	if o.prepares() {
		c.Prepare = func(_ echo.Context, q *ratelimit.Request) { o.prepare(q) }
	}
	if o.forgive {
		c.Error = func(echo.Context, error) bool { return true }
	}
	if o.denied {
		c.Denied = func(c echo.Context, _ *httplimit.Info) error { return c.Blob(420, "text/plain", []byte("slow down")) }
	}
	if o.blocked {
		c.Blocked = func(c echo.Context, _ *httplimit.Info) error {
			return c.Blob(http.StatusForbidden, "text/plain", []byte("go away"))
		}
	}
	return c
}

func echo4Text(body string) echo.HandlerFunc {
	return func(c echo.Context) error { return c.Blob(http.StatusOK, "text/plain", []byte(body)) }
}

func echo4Routes(s *service, m *echo4.Middleware, e *echo.Echo) {
	e.GET("/items/:id", func(c echo.Context) error { return echo4Text("item " + c.Param("id"))(c) })
	e.HEAD("/items/:id", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	e.POST("/login", func(c echo.Context) error {
		switch c.Request().Header.Get("X-Password") {
		case "right":
			return echo4Text("welcome")(c)
		case "wrong":
			return c.Blob(http.StatusUnauthorized, "text/plain", []byte("wrong password"))
		}
		return http.ErrNoCookie
	})
	e.GET("/panic", func(echo.Context) error { panic("a bug") })
	e.GET("/stream", func(c echo.Context) error {
		_, _ = c.Response().Write([]byte("one\n"))
		_ = http.NewResponseController(c.Response()).Flush()
		<-s.release
		_, err := c.Response().Write([]byte("two\n"))
		return err
	})
	e.GET("/slow", func(c echo.Context) error {
		s.running <- struct{}{}
		<-s.release
		return echo4Text("done")(c)
	})
	e.GET("/empty", func(echo.Context) error { return nil })
	e.GET("/info", func(c echo.Context) error { return echo4Text(infoText(echo4.Info(c)))(c) })
	e.GET("/mail", func(c echo.Context) error {
		if ok, err := m.Allow(c, mail); !ok {
			return err
		}
		return echo4Text("sent")(c)
	})
	e.GET("/job", func(c echo.Context) error {
		units, ok, err := m.Reserve(c, job, time.Minute)
		if !ok {
			return err
		}
		_ = units.Settle(1)
		return echo4Text("worked")(c)
	})
	e.GET("/healthz", echo4Text("healthy"))
	e.GET("/twice", echo4Text("twice"), m.Handler)
}
